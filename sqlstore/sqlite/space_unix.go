//go:build linux || darwin || freebsd

package sqlite

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// statfs is replaced by tests.
var statfs = unix.Statfs

// fileSystem returns the size of the file system that has the file at path, and what ordinary users may still write.
func fileSystem(path string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := statfs(path, &s); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil //nolint:unconvert // differs between systems
}

// allocated returns how many bytes the file at path takes on the disk, 0 if that cannot be found out.
func allocated(path string) int64 {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return 0
	}
	return s.Blocks * 512 // whatever the file system's blocks have
}
