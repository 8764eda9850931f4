//go:build !linux

package enginetest

import "os"

// awaitStopped: only Linux tells; elsewhere the signal has to do.
func (p *instance) awaitStopped() error { return nil }

// lockFile never reports a lock, so that no directory is taken for abandoned.
func lockFile(*os.File) (held bool, err error) { return false, nil }
