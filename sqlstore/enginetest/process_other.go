//go:build !linux

package enginetest

import (
	"os"
	"syscall"
)

// processAttributes: only Linux ends a child with its parent. Elsewhere a
// server outlives a test process that is killed.
func (o owner) processAttributes() *syscall.SysProcAttr { return nil }

func holdThread() (unlock func()) { return func() {} }

// awaitStopped: only Linux tells; elsewhere the signal has to do.
func (p *process) awaitStopped() error { return nil }

// lockFile never reports a lock, so that no directory is taken for abandoned.
func lockFile(*os.File) (held bool, err error) { return false, nil }
