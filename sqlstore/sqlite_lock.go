package sqlstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gofrs/flock"
)

// An SQLite database is served by one process: the others would not see what it
// keeps in memory, and take the leadership from each other. The lock that says
// so is on a file of its own beside the database. A lock on the database itself
// would meet SQLite's: POSIX drops all locks a process has on a file as soon as
// it closes any descriptor of it. The kernel gives the lock up with the process,
// however that ends; the file stays, because removing it would let two processes
// lock two files of the same name.

// lockSuffix is what the lock file's name adds to the database's.
const lockSuffix = ".lock"

// maxLinks bounds the symbolic links followed to a file, as systems do.
const maxLinks = 40

// fileLock is the lock on an SQLite file.
type fileLock struct{ lock *flock.Flock }

// lockFile locks the SQLite database at path, which need not exist. It returns
// ErrInUse if another process, or another lockFile of this one, holds the lock.
func lockFile(path string) (*fileLock, error) {
	path, err := realPath(path)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: lock %s: %w", path, err)
	}
	if err := createPrivate(path + lockSuffix); err != nil {
		return nil, fmt.Errorf("sqlstore: lock %s: %w", path, err)
	}
	lock := flock.New(path+lockSuffix, flock.SetPermissions(fileMode))
	held, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("sqlstore: lock %s: %w", path, err)
	}
	if !held {
		return nil, fmt.Errorf("%w: %s%s", ErrInUse, path, holder(lock.Path()))
	}
	writeHolder(lock.Path())
	return &fileLock{lock}, nil
}

func (l *fileLock) Close() error { return l.lock.Close() }

// realPath returns the one name of the file that path leads to, as SQLite finds
// it: absolute and without symbolic links. The file itself need not exist.
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

// writeHolder leaves in the lock file who holds it. It is a courtesy to whoever is
// refused, so nothing depends on its success: not every system lets a locked file
// be written.
func writeHolder(path string) {
	switch runtime.GOOS {
	case "aix", "illumos", "solaris":
		return // the lock is POSIX's here, and would go with this descriptor
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	_ = os.WriteFile(path, fmt.Appendf(nil, "process %d on host %s\n", os.Getpid(), host), fileMode)
}

// holder returns what writeHolder left, as the end of a sentence.
func holder(path string) string {
	text, err := os.ReadFile(path)
	who, complete := strings.CutSuffix(string(text), "\n")
	if err != nil || !complete || strings.ContainsFunc(who, func(r rune) bool { return r < ' ' }) {
		return ""
	}
	return " (" + who + ")"
}
