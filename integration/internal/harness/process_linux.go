package harness

import (
	"runtime"
	"syscall"
)

// dieWithParent makes the kernel kill the process when the thread that started
// it ends; holdThread keeps that thread for as long as the process runs.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

func holdThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
