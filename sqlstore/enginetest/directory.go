package enginetest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

const directoryPrefix = "sqlbrain-engine-"

// directory is a server's place on disk. This process holds a lock on a file in it as long
// as it lives, which distinguishes directories in use from abandoned ones.
type directory struct {
	path  string
	owner *process.User
	lock  *os.File
}

// findOwner returns the user that servers run as if this process is root: both engines refuse to run as root.
// It returns nil if this process is another user, and its servers are that user's.
func findOwner() (*process.User, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("mysql")
	if err != nil {
		return nil, fmt.Errorf("%w: running as root, and the user mysql, as which the server would run, does not exist: %v",
			ErrNoEngine, err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	return &process.User{UID: uint32(uid), GID: uint32(gid)}, errors.Join(uidErr, gidErr)
}

// makeDirectory creates a directory that the server's user owns and can reach, and removes
// the directories of killed test processes. It does not use t.TempDir, whose parents other
// users cannot enter.
func makeDirectory() (*directory, error) {
	o, err := findOwner()
	if err != nil {
		return nil, err
	}
	parent := os.TempDir()
	if o != nil && !reachable(parent) {
		parent = "/tmp"
	}
	removeAbandoned(parent)
	path, err := os.MkdirTemp(parent, directoryPrefix)
	if err != nil {
		return nil, err
	}
	d := &directory{path: path, owner: o}
	if d.lock, err = os.Create(filepath.Join(path, "lock")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	_, err = lockFile(d.lock)
	if err == nil {
		// With content, the file's lock decides; see removeAbandoned.
		_, err = fmt.Fprintln(d.lock, os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(err, d.remove())
	}
	if err := chown(path, d.owner); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	return d, nil
}

// reachable reports whether every user may pass through path and its parents.
func reachable(path string) bool {
	for {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(path)
		if parent == path {
			return true
		}
		path = parent
	}
}

// removeAbandoned removes the directories whose lock nobody holds. It only
// tidies up: what cannot be removed, another user's for one, is left.
func removeAbandoned(parent string) {
	paths, err := filepath.Glob(filepath.Join(parent, directoryPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		// A directory with no lock file, or an empty one, is just being made.
		f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if info, err := f.Stat(); err == nil && info.Size() > 0 {
			if held, err := lockFile(f); held && err == nil {
				_ = os.RemoveAll(path)
			}
		}
		_ = f.Close()
	}
}

func (d *directory) remove() error {
	// The lock file goes with the directory, while it is still locked.
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}
