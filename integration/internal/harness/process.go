package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

// logShown is how much of its log, in bytes, each process of a failed test shows: a
// cluster has several.
const logShown = 3000

// Process is a running program whose output goes to a file. A test that fails
// shows the end of it.
type Process struct{ program *process.Process }

// StartProcess runs a program until the test ends, or earlier.
func StartProcess(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	return StartProcessWith(t, process.Options{}, name, args...)
}

// StartProcessWith is StartProcess with options, whose log it sets.
func StartProcessWith(t testing.TB, o process.Options, name string, args ...string) *Process {
	t.Helper()
	o.Log = filepath.Join(t.TempDir(), "log")
	program, err := process.Start(o, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{program}
	t.Cleanup(func() {
		p.Kill(t)
		if t.Failed() {
			// Not to t, whose output comes when the test is done: the failure is then
			// printed after the logs, not before them.
			fmt.Fprintf(os.Stderr, "%s: end of the log of %s %s:\n%s\n", t.Name(), filepath.Base(name), strings.Join(args, " "),
				p.LogTail(logShown))
		}
	})
	return p
}

// ID returns the process id.
func (p *Process) ID() int { return p.program.ID() }

// LogPath returns the file of the program's output.
func (p *Process) LogPath() string { return p.program.Log() }

// Exited is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.program.Exited() }

// Running reports whether the program has not ended.
func (p *Process) Running() bool { return p.program.Running() }

// Await fails t if ready does not return nil within readyWait, or the program ends first.
func (p *Process) Await(t testing.TB, ready func(context.Context) error) {
	t.Helper()
	if err := p.program.Await(context.Background(), readyWait, readyPoll, ready); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the program at once (SIGKILL) and waits for its end.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	if err := p.program.Kill(); err != nil {
		t.Fatal(err)
	}
}

// Stop asks the program to end (SIGTERM), waits for it, and fails the test if it
// takes too long, ends with an error, or had ended before.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	if !p.Running() {
		t.Fatalf("it had ended before SIGTERM: %v\n%s", p.program.Err(), p.LogTail(4000))
	}
	if err := p.program.Stop(); err != nil {
		t.Fatalf("%v\n%s", err, p.LogTail(4000))
	}
	err := p.program.Err()
	// etcd ends itself with the signal it was sent, which is not a failure.
	if exit, ok := errors.AsType[*exec.ExitError](err); ok &&
		exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM && p.program.Name() == "etcd" {
		return
	}
	if err != nil {
		t.Fatalf("after SIGTERM: %v\n%s", err, p.LogTail(4000))
	}
}

// Pause and Resume freeze the program and let it continue.
func (p *Process) Pause(t testing.TB)  { t.Helper(); p.signal(t, syscall.SIGSTOP) }
func (p *Process) Resume(t testing.TB) { t.Helper(); p.signal(t, syscall.SIGCONT) }

func (p *Process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.program.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// stackTrace is where the caller of an error stands in a line of etcd's log. There
// are more of them than of anything else.
var stackTrace = regexp.MustCompile(`,"stacktrace":"(?:[^"\\]|\\.)*"`)

// LogTail returns the last bytes of the program's output, without stack traces of
// etcd's.
func (p *Process) LogTail(most int) string {
	s := stackTrace.ReplaceAllString(p.program.LogTail(16*int64(most)), "")
	return s[max(0, len(s)-most):]
}

// Output is what a program that ended by itself left.
type Output struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a program to its end, at most for the time given, with input as its
// standard input. A program that does not end in time fails the test.
func Run(t testing.TB, limit time.Duration, input, name string, args ...string) Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	err := cmd.Run()
	out := Output{Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		t.Fatalf("%s did not end within %s\nstdout: %s\nstderr: %s", describe(name, args), limit, out.Stdout, out.Stderr)
	case errors.As(err, &exit):
		out.Code = exit.ExitCode()
	case err != nil:
		t.Fatal(err)
	}
	return out
}

func describe(name string, args []string) string {
	return fmt.Sprintf("%s %q", filepath.Base(name), args)
}
