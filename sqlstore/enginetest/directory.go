package enginetest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

const directoryPrefix = "sqlbrain-engine-"

// directory is a server's place on disk. A lock on a file in it, held as long
// as this process lives, tells directories in use from abandoned ones.
type directory struct {
	path  string
	owner owner
	lock  *os.File
}

// owner is the user that servers run as: both engines refuse to run as root.
type owner struct {
	change   bool // this process is root: run them as uid, gid
	uid, gid uint32
}

func findOwner() (owner, error) {
	if os.Geteuid() != 0 {
		return owner{}, nil
	}
	u, err := user.Lookup("mysql")
	if err != nil {
		return owner{}, fmt.Errorf("%w: running as root, and there is no user mysql to run the server as: %v", errNoEngine, err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	return owner{change: true, uid: uint32(uid), gid: uint32(gid)}, errors.Join(uidErr, gidErr)
}

// makeDirectory creates a directory that the server's user owns and can reach,
// and removes those that killed test processes left behind. It is not
// t.TempDir, whose parents are closed to other users.
func makeDirectory() (*directory, error) {
	o, err := findOwner()
	if err != nil {
		return nil, err
	}
	parent := os.TempDir()
	if o.change && !reachable(parent) {
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
		// From here on the lock tells; see removeAbandoned.
		_, err = fmt.Fprintln(d.lock, os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(err, d.remove())
	}
	if err := d.chown(path); err != nil {
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

// writeFile creates a file that the server can read.
func (d *directory) writeFile(name, content string) error {
	path := filepath.Join(d.path, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return err
	}
	return d.chown(path)
}

func (d *directory) chown(path string) error {
	if !d.owner.change {
		return nil
	}
	return os.Chown(path, int(d.owner.uid), int(d.owner.gid))
}

func (d *directory) remove() error {
	// The lock file goes with the directory, while it is still locked.
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}
