package enginetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// awaitStopped waits until the kernel has stopped every thread: the signal only
// asks for it, and a statement may still be answered meanwhile.
func (p *instance) awaitStopped() error {
	const stopWait = startWait // a thread stops once what it waits for from its disk has come
	pattern := fmt.Sprintf("/proc/%d/task/*/stat", p.program.ID())
	for deadline := time.Now().Add(stopWait); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
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
	return fmt.Errorf("the server did not stop within %s of SIGSTOP", stopWait)
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
