package testserver

import (
	"runtime"
	"syscall"
)

// dieWithParent has the kernel kill the server when the thread that started it
// ends, as it does when the test binary crashes.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// holdThread keeps that thread until release.
func holdThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
