package enginetest

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// processAttributes makes the kernel kill the server when the thread that
// started it ends. Changing the user here rather than by the server's --user
// matters: a program that changes its own user loses that setting.
func (o owner) processAttributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if o.change {
		a.Credential = &syscall.Credential{Uid: o.uid, Gid: o.gid}
	}
	return a
}

// holdThread keeps the calling goroutine on a thread of its own until the
// function it returns is called: the server lives as long as that thread.
func holdThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// lockFile takes f's lock and reports whether it got it; another process may
// have it. The lock ends with f, or with this process.
func lockFile(f *os.File) (held bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
