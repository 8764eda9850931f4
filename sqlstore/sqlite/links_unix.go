//go:build unix

package sqlite

import "golang.org/x/sys/unix"

// links returns how many names (hard links) the file at path has, 0 if it is not known.
func links(path string) uint64 {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil || s.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0
	}
	return uint64(s.Nlink) //nolint:unconvert // differs between systems
}
