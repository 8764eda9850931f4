//go:build linux || darwin || freebsd

package doctor

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// mayWrite returns why this process may not write to a file or a directory.
func mayWrite(path string) error {
	if err := unix.Access(path, unix.W_OK); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
