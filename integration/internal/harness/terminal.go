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
)

// Terminal is a program that runs beside what the test does else, and that the test
// types to and reads from. It ends with the test, or earlier. Its methods end the
// test when they fail.
type Terminal struct {
	t              testing.TB
	process        *Process // without a log
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
	w := &Terminal{t: t, name: describe(name, args), process: &Process{cmd: exec.Command(name, args...), exited: make(chan struct{})}}
	w.process.cmd.Stdout, w.process.cmd.Stderr = &w.stdout, &w.stderr
	w.process.cmd.WaitDelay = 5 * time.Second // for programs that it has started
	var err error
	if w.input, err = w.process.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := w.process.start(nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.process.Kill(t) })
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
		case <-w.process.exited:
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
	if err := w.process.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		w.t.Fatal(err)
	}
	select {
	case <-w.process.exited:
	case <-time.After(stopWait):
		w.t.Fatalf("%s does not end\n%s", w.name, w.printed())
	}
	return Output{Stdout: w.stdout.text(), Stderr: w.stderr.text(), Code: w.process.cmd.ProcessState.ExitCode()}
}

func (w *Terminal) printed() string {
	return fmt.Sprintf("stdout: %s\nstderr: %s", w.stdout.text(), w.stderr.text())
}

// RunUntil runs a program that does not end by itself, and ends it (SIGINT) when
// its output has the text until. Its exit code is not told.
func RunUntil(t testing.TB, limit time.Duration, until, name string, args ...string) Output {
	t.Helper()
	w := OpenTerminal(t, name, args...)
	w.Await(until, limit)
	out := w.Close()
	out.Code = 0
	return out
}
