//go:build !linux

package testserver

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

func holdThread() (release func()) { return func() {} }
