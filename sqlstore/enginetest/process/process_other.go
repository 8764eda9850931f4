//go:build !linux

package process

import (
	"errors"
	"os"
	"syscall"
)

// attributes sets nothing: only Linux ends a child with its parent, and lets tests run as root start programs as
// another user.
func attributes(*User) *syscall.SysProcAttr { return nil }

func holdThread() (release func()) { return func() {} }

// EnterNetwork fails with any namespace but nil.
func EnterNetwork(namespace *os.File) error {
	if namespace == nil {
		return nil
	}
	return errors.ErrUnsupported
}
