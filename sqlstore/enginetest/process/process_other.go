//go:build !linux

package process

import "syscall"

// attributes sets nothing: only Linux ends a child with its parent, and lets tests run as root start programs as
// another user.
func attributes(*User) *syscall.SysProcAttr { return nil }

func holdThread() (release func()) { return func() {} }
