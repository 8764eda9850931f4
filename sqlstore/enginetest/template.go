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
	of map[string]*template
}{of: map[string]*template{}}

type template struct {
	once sync.Once
	dir  *directory // nil if it could not be made
	err  error
}

// fill copies an initialised data directory of a product's server to dir.
func (p *instance) fill() error {
	templates.Lock()
	t := templates.of[p.binary]
	if t == nil {
		t = &template{}
		templates.of[p.binary] = t
	}
	templates.Unlock()
	t.once.Do(func() { t.dir, t.err = install(p.product) })
	if t.err != nil {
		return t.err
	}
	return CopyData(p.dataDir(), filepath.Join(t.dir.path, "data"), p.dir.owner)
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
	for binary, t := range templates.of {
		delete(templates.of, binary)
		if t.dir != nil {
			errs = append(errs, t.dir.remove())
		}
	}
	return errors.Join(errs...)
}
