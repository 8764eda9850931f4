// Package durable brings the names of files to disk. A file that is flushed can be lost with its name.
package durable

import (
	"errors"
	"os"
	"runtime"
)

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
