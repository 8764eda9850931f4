package sqlite

import "golang.org/x/sys/unix"

// mountPoint reports whether something is mounted at path, as a container's runtime does it for a single file.
func mountPoint(path string) bool {
	var s unix.Statx_t
	return unix.Statx(unix.AT_FDCWD, path, 0, 0, &s) == nil && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
