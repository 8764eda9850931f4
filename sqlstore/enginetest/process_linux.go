package enginetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
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

// awaitStopped waits until the kernel has stopped every thread: the signal only
// asks for it, and a statement may still be answered meanwhile.
func (p *process) awaitStopped() error {
	const patience = 10 * time.Second
	pattern := fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		stats, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		stopped := len(stats) > 0
		for _, stat := range stats {
			content, err := os.ReadFile(stat)
			if err != nil {
				continue // the thread ended
			}
			// The state follows the name, which is in brackets.
			_, rest, _ := strings.Cut(string(content), ") ")
			stopped = stopped && strings.HasPrefix(rest, "T")
		}
		if stopped {
			return nil
		}
	}
	return fmt.Errorf("the server did not stop within %s of SIGSTOP", patience)
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
