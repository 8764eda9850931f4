package process

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes make the kernel kill the program when the thread that started it ends; holdThread keeps that thread for as
// long as the program runs. The program has its own process group: Ctrl-C at the terminal goes to the process that
// started it, which stops it in order. The user is changed here because a program that changes its own user, as with
// mysqld --user, loses the setting of its death.
func attributes(as *User) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if as != nil {
		a.Credential = &syscall.Credential{Uid: as.UID, Gid: as.GID}
	}
	return a
}

// holdThread keeps the calling goroutine on its thread until release.
func holdThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// EnterNetwork moves the thread of the calling goroutine, which must be of that goroutine alone, to a network namespace,
// unless that is nil. The thread ends with the goroutine.
func EnterNetwork(namespace *os.File) error {
	if namespace == nil {
		return nil
	}
	runtime.LockOSThread() // never undone
	return os.NewSyscallError("setns", unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET))
}
