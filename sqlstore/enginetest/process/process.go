// Package process runs the programs of tests and measurements: servers of databases, sqlbrain, etcd.
// A program that was started here does not outlive the process that started it, on Linux not even if that is killed.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// stopWait is how long a program that was asked to end may take.
	stopWait = 3 * time.Minute
	// attemptWait bounds one attempt of Await: a server that is coming up may never answer it.
	attemptWait = 5 * time.Second
)

// Process is a program that was started. Its methods are safe for concurrent use.
type Process struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{} // closed when the program has ended, after err is set
	err    error
}

// Start starts a program whose output goes to o.Log.
func Start(o Options, name string, args ...string) (*Process, error) {
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the program has its own descriptor
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = o.Dir, log, log
	p, err := launch(cmd, o)
	if err == nil {
		p.log = o.Log
	}
	return p, err
}

// Launch starts a command that the caller prepared, as a user. It has no log.
func Launch(cmd *exec.Cmd, as *User) (*Process, error) { return launch(cmd, Options{As: as}) }

func launch(cmd *exec.Cmd, o Options) (*Process, error) {
	catchInterrupts()
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	cmd.SysProcAttr = attributes(o.As)
	started := make(chan error, 1)
	go func() {
		release := holdThread()
		defer release()
		err := EnterNetwork(o.Network)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// catchInterrupts makes programs that are started end at an interrupt (SIGINT) where this process ignores it, as
// a shell's job in the background does: they would inherit that, but not that it is caught.
func catchInterrupts() {
	if signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
}

// Run runs a command that the caller prepared to its end, as a user.
func Run(cmd *exec.Cmd, as *User) error {
	cmd.SysProcAttr = attributes(as)
	release := holdThread()
	defer release()
	return cmd.Run()
}

// Output is Run that returns what the command wrote to its standard output and error.
func Output(cmd *exec.Cmd, as *User) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := Run(cmd, as)
	return out.Bytes(), err
}

// ID returns the process id.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Name returns the program's file name.
func (p *Process) Name() string { return filepath.Base(p.cmd.Path) }

// Log returns the path of the file with the program's output; empty after Launch.
func (p *Process) Log() string { return p.log }

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

// Err waits for the program's end and returns how it ended: nil for exit code 0, else an *exec.ExitError.
func (p *Process) Err() error {
	<-p.exited
	return p.err
}

// Signal sends a signal. It returns os.ErrProcessDone if the program has ended.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Stop asks the program to end (SIGTERM) and waits until it has, with whatever exit code. A program that takes longer
// than three minutes is killed, which is an error. A program that has ended already is none.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopWait):
		return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM", p.Name(), stopWait), p.Kill())
	}
}

// Kill ends the program at once (SIGKILL), if it runs, and waits for its end.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.exited
	return nil
}

// Await calls ready, every poll, until it returns nil. It returns an error with the end of the log if the program ends
// first, and ready's last error if limit has passed or ctx has ended.
func (p *Process) Await(ctx context.Context, limit, poll time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptWait)
		err := ready(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s %w: %v\n%s", p.Name(), ErrEnded, p.err, p.LogTail(4000))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %s: %w\n%s", p.Name(), limit, err, p.LogTail(4000))
		case <-tick.C:
		}
	}
}

// ErrEnded is wrapped by the error of Await if the program has ended.
var ErrEnded = errors.New("ended while starting")

// LogTail returns the last bytes of the log, at most limit.
func (p *Process) LogTail(limit int64) string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close() //nolint:errcheck // only read
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, err = f.Seek(max(0, size-limit), io.SeekStart)
		if err != nil {
			return err.Error()
		}
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}
