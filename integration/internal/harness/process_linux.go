package harness

import (
	"runtime"
	"syscall"
)

// dieWithParent makes the kernel kill the process when the thread that started
// it ends; holdThread keeps that thread for as long as the process runs. So the
// process can have a group of its own: a Ctrl-C at the terminal is for whoever
// started it, who stops it in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

func holdThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
