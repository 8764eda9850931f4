// Package durable brings the names of files to disk. A file that is flushed can be lost with its name.
package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Create writes a file, mode 0600, which has its name once it is complete and flushed; until then its name begins with
// temporary, in the same directory. ready, if not nil, is called before it gets its name. An error before that leaves
// nothing. Errors: those of write and ready, the system's.
func Create(path, temporary string, write func(io.Writer) error, ready func() error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, temporary)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // after the rename nothing has this name
		}
	}()
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if ready != nil {
		if err := ready(); err != nil {
			return err
		}
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return FlushDir(dir)
}

// MakeDir creates a directory with mode 0700, and those above it, unless they exist. A loss of power does not undo
// that. flush is FlushDir, or a test's.
func MakeDir(path string, flush func(dir string) error) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	parent := filepath.Dir(path)
	if err := MakeDir(parent, flush); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return flush(parent)
}

// FlushDir flushes the names of the files in a directory. Windows has no call for that; there it does nothing.
// Errors: the system's.
func FlushDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
