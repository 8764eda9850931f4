package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// lockSuffix is added to the database's name to name the lock file.
const lockSuffix = ".lock"

// maxLinks bounds the symbolic links that are followed, as operating systems do.
const maxLinks = 40

// realPath returns the name of the file at path as SQLite resolves it: absolute and without
// symbolic links. The file itself need not exist.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return path, err
	}
	for range maxLinks {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return path, err
		}
		path = filepath.Join(dir, filepath.Base(path))
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		if err != nil {
			return path, err
		}
		target, err := os.Readlink(path)
		if err != nil {
			return path, err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		path = target
	}
	return path, errors.New("too many symbolic links")
}
