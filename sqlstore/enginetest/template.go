package enginetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// templates hold, by the path of a server's program, what its new servers copy: most of the
// start of a server would be the initialisation of its data directory.
var templates = struct {
	sync.Mutex
	of map[string]func() (*directory, error)
}{of: map[string]func() (*directory, error){}}

// fill copies an initialised data directory of a product's server to dir.
func (p *instance) fill() error {
	templates.Lock()
	template := templates.of[p.binary]
	if template == nil {
		template = sync.OnceValues(func() (*directory, error) { return install(p.product) })
		templates.of[p.binary] = template
	}
	templates.Unlock()
	dir, err := template()
	if err != nil {
		return err
	}
	return CopyData(p.dataDir(), filepath.Join(dir.path, "data"), p.dir.owner)
}

// install makes a directory with a server's data directory.
func install(p Product) (*directory, error) {
	dir, err := makeDirectory()
	if err != nil {
		return nil, err
	}
	if p == tidb {
		err = bootstrap(dir)
	} else {
		_, err = p.Initialise(filepath.Join(dir.path, "data"))
	}
	if err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return dir, nil
}

// bootstrap has a TiDB fill its data directory, as its first start does.
func bootstrap(dir *directory) error {
	binary, err := tidb.Program()
	if err != nil {
		return err
	}
	p := &instance{dir: dir, binary: binary, product: tidb}
	script := p.setupFile()
	if err := errors.Join(os.WriteFile(script, []byte(setupTiDB), 0o600), chown(script, dir.owner)); err != nil {
		return err
	}
	if err := p.start(); err != nil {
		return errors.Join(fmt.Errorf("%w\n%s", err, p.logTail()), p.kill(), p.release())
	}
	return errors.Join(p.stop(), p.release())
}

// removeTemplates removes the directories of all templates.
func removeTemplates() error {
	templates.Lock()
	defer templates.Unlock()
	var errs []error
	for binary, template := range templates.of {
		delete(templates.of, binary)
		if dir, err := template(); err == nil {
			errs = append(errs, dir.remove())
		}
	}
	return errors.Join(errs...)
}
