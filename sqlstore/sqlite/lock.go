package sqlite

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/gofrs/flock"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// One process serves an SQLite database. Several would not see what the others keep in
// memory, and would take the leadership from each other. The lock that prevents this is on
// a separate file next to the database. A lock on the database file would interfere with
// SQLite's locks: POSIX drops all locks of a process on a file as soon as the process
// closes any descriptor of it. The kernel releases the lock when the process ends, even if
// it is killed. The lock file stays, because removing it would let two processes lock two
// files of the same name. A database with several names, which would have several lock
// files, is refused (see connect).

// fileLock is the lock on an SQLite file.
type fileLock struct{ lock *flock.Flock }

// lockFile locks the SQLite database at path, which need not exist. It returns
// sqlstore.ErrInUse if another process, or another lockFile of this one, holds the lock.
func lockFile(path string) (*fileLock, error) {
	path, err := realPath(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: lock %s: %w", path, err)
	}
	if err := createPrivate(path + lockSuffix); err != nil {
		return nil, fmt.Errorf("sqlite: lock %s: %w", path, err)
	}
	lock := flock.New(path+lockSuffix, flock.SetPermissions(fileMode))
	held, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("sqlite: lock %s: %w", path, err)
	}
	if !held {
		return nil, fmt.Errorf("%w: %s%s", sqlstore.ErrInUse, path, holder(lock.Path()))
	}
	writeHolder(lock.Path())
	return &fileLock{lock}, nil
}

func (l *fileLock) Close() error { return l.lock.Close() }

// writeHolder writes this process's number and host into the lock file, for the error of
// other processes. Nothing depends on its success: not every system permits writing a
// locked file.
func writeHolder(path string) {
	switch runtime.GOOS {
	case "aix", "illumos", "solaris":
		return // these have POSIX locks, which closing this descriptor would drop
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	_ = os.WriteFile(path, fmt.Appendf(nil, "process %d on host %s\n", os.Getpid(), host), fileMode)
}

// holder returns what writeHolder wrote, as the end of a sentence.
func holder(path string) string {
	text, err := os.ReadFile(path)
	who, complete := strings.CutSuffix(string(text), "\n")
	if err != nil || !complete || strings.ContainsFunc(who, func(r rune) bool { return r < ' ' }) {
		return ""
	}
	return " (" + who + ")"
}
