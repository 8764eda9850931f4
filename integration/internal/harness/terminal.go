package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

// closeWait is how long a program may take to end after an interrupt.
const closeWait = eventually.Deadline

// Terminal is a program that runs in the background of a test. The test writes to its
// input and reads its output. It ends with the test, or earlier. Its methods end the
// test when they fail.
type Terminal struct {
	t              testing.TB
	process        *process.Process // without a log
	name           string
	input          io.WriteCloser
	stdout, stderr screen
}

// screen gathers output.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// OpenTerminal starts a program.
func OpenTerminal(t testing.TB, name string, args ...string) *Terminal {
	t.Helper()
	w, cmd := &Terminal{t: t, name: describe(name, args)}, exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &w.stdout, &w.stderr
	cmd.WaitDelay = 5 * time.Second // for programs that it has started
	var err error
	if w.input, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if w.process, err = process.Launch(cmd, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.process.Kill(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// Type gives the program a line to read.
func (w *Terminal) Type(line string) {
	w.t.Helper()
	if _, err := io.WriteString(w.input, line+"\n"); err != nil {
		w.t.Fatalf("%s: type %q: %v\n%s", w.name, line, err, w.printed())
	}
}

// Await returns when the program has printed text, to either of its outputs. It
// waits for no longer than limit.
func (w *Terminal) Await(text string, limit time.Duration) {
	w.t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for !strings.Contains(w.stdout.text(), text) && !strings.Contains(w.stderr.text(), text) {
		select {
		case <-w.process.Exited():
			if !strings.Contains(w.printed(), text) {
				w.t.Fatalf("%s ended without printing %q\n%s", w.name, text, w.printed())
			}
			return
		case <-poll.C:
		case <-deadline.C:
			w.t.Fatalf("%s did not print %q within %s\n%s", w.name, text, limit, w.printed())
		}
	}
}

// Close interrupts the program (SIGINT), if it has not ended by itself, and returns
// what it left. The code of one that the signal has ended is -1.
func (w *Terminal) Close() Output {
	w.t.Helper()
	if err := w.process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		w.t.Fatal(err)
	}
	select {
	case <-w.process.Exited():
	case <-time.After(closeWait):
		w.t.Fatalf("%s does not end\n%s", w.name, w.printed())
	}
	out := Output{Stdout: w.stdout.text(), Stderr: w.stderr.text()}
	var exit *exec.ExitError
	if err := w.process.Err(); errors.As(err, &exit) {
		out.Code = exit.ExitCode()
	}
	return out
}

func (w *Terminal) printed() string {
	return fmt.Sprintf("stdout: %s\nstderr: %s", w.stdout.text(), w.stderr.text())
}

// RunUntil runs a program that does not end by itself, and ends it (SIGINT) when
// its output contains the text until. It does not return the exit code.
func RunUntil(t testing.TB, limit time.Duration, until, name string, args ...string) Output {
	t.Helper()
	w := OpenTerminal(t, name, args...)
	w.Await(until, limit)
	out := w.Close()
	out.Code = 0
	return out
}
