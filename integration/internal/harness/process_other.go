//go:build unix && !linux

package harness

import "syscall"

// dieWithParent: only Linux ends a child with its parent.
func dieWithParent() *syscall.SysProcAttr { return nil }

func holdThread() (release func()) { return func() {} }
