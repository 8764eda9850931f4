package process

import (
	"runtime"
	"syscall"
)

// Attributes make the kernel kill the program when the thread that started it
// ends; HoldThread keeps that thread for as long as the program runs. It has a
// group of its own, so that a Ctrl-C is for this process, which stops it in order.
func Attributes(as *Account) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if as != nil {
		a.Credential = &syscall.Credential{Uid: as.UID, Gid: as.GID}
	}
	return a
}

// HoldThread keeps the goroutine on its thread until release is called.
func HoldThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
