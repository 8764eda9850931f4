package enginetest

import (
	"errors"
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
	if _, err := p.Initialise(filepath.Join(dir.path, "data")); err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return dir, nil
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
