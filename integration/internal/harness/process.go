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
)

const stopWait = 30 * time.Second

// logShown is how much of its log, in bytes, each process of a failed test shows: a
// cluster has several.
const logShown = 3000

// Process is a running program whose output goes to a file. A test that fails
// shows the end of it.
type Process struct {
	cmd     *exec.Cmd
	logPath string
	exited  chan struct{} // closed when the program has ended, after err is set
	err     error
}

// StartProcess runs a program until the test ends, or earlier.
func StartProcess(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	return StartProcessAs(t, nil, name, args...)
}

// StartProcessAs is StartProcess as another user, for who may do that. Nil is the
// user of this process.
func StartProcessAs(t testing.TB, user *syscall.Credential, name string, args ...string) *Process {
	t.Helper()
	p := &Process{logPath: filepath.Join(t.TempDir(), "log"), exited: make(chan struct{})}
	log, err := os.Create(p.logPath)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()
	p.cmd = exec.Command(name, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.start(user); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill(t)
		if t.Failed() {
			// Not to t, whose own output comes when it is done: what failed is
			// then said behind the logs, and not buried under them.
			fmt.Fprintf(os.Stderr, "%s: end of the log of %s %s:\n%s\n", t.Name(), filepath.Base(name), strings.Join(args, " "), p.LogTail(logShown))
		}
	})
	return p
}

// start starts the program and a goroutine that waits for its end. It does not
// outlive this process.
func (p *Process) start(user *syscall.Credential) error {
	p.cmd.SysProcAttr = dieWithParent()
	p.cmd.SysProcAttr.Credential = user
	started := make(chan error, 1)
	go func() {
		release := holdThread()
		defer release()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.exited)
		}
	}()
	return <-started
}

// ID is the process id.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// LogPath is where the program's output goes.
func (p *Process) LogPath() string { return p.logPath }

// Exited is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running reports whether the program has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Kill ends the program at once (SIGKILL) and waits for its end.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	<-p.exited
}

// Stop asks the program to end (SIGTERM), waits for it, and fails the test if it
// takes too long, ends with an error, or had ended before.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("stop: %v", err)
	}
	select {
	case <-p.exited:
		// etcd ends itself with the signal it was sent; that is no failure.
		var exit *exec.ExitError
		if errors.As(p.err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM && filepath.Base(p.cmd.Path) == "etcd" {
			return
		}
		if p.err != nil {
			t.Fatalf("after SIGTERM: %v\n%s", p.err, p.LogTail(4000))
		}
	case <-time.After(stopWait):
		p.Kill(t)
		t.Fatalf("did not stop within %s of SIGTERM\n%s", stopWait, p.LogTail(4000))
	}
}

// Pause and Resume freeze the program and let it go on.
func (p *Process) Pause(t testing.TB)  { t.Helper(); p.signal(t, syscall.SIGSTOP) }
func (p *Process) Resume(t testing.TB) { t.Helper(); p.signal(t, syscall.SIGCONT) }

func (p *Process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// stackTrace is where the caller of an error stands in a line of etcd's log. There
// are more of them than of anything else.
var stackTrace = regexp.MustCompile(`,"stacktrace":"(?:[^"\\]|\\.)*"`)

// LogTail returns the last bytes of the program's output, without stack traces of
// etcd's.
func (p *Process) LogTail(most int) string {
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	b = stackTrace.ReplaceAll(b, nil)
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return string(b)
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
