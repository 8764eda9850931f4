package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stopWait is how long a program that was asked to end may take.
const stopWait = time.Minute

// Process is a running program whose output goes to a file.
type Process struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{} // closed when the program has ended, after err is set
	err    error
}

// Options say how a program is run.
type Options struct {
	Dir string   // working directory
	Log string   // file of its output, which is added to
	As  *Account // nil: this process's own
}

// Account is a user of this machine.
type Account struct{ UID, GID uint32 }

// Start runs a program until it is stopped, or this process ends.
func Start(o Options, name string, args ...string) (*Process, error) {
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the program has its own descriptor
	p := &Process{cmd: exec.Command(name, args...), log: o.Log, exited: make(chan struct{})}
	p.cmd.Dir = o.Dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = Attributes(o.As)
	started := make(chan error, 1)
	go func() {
		release := HoldThread()
		defer release()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// ID is the process id.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Name is the program's file name.
func (p *Process) Name() string { return filepath.Base(p.cmd.Path) }

// Running reports whether the program has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Stop asks the program to end (SIGTERM), waits for that, and ends it if it takes
// too long.
func (p *Process) Stop() error {
	if !p.Running() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return nil // with whatever code: some end by the signal they were sent
	case <-time.After(stopWait):
		return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM", p.Name(), stopWait), p.Kill())
	}
}

// Kill ends the program at once (SIGKILL), and waits for its end.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.exited
	return nil
}

// Await polls until ready returns nil. It fails when the program ends first, or
// after the time.
func (p *Process) Await(ctx context.Context, most, poll time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := ready(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended while starting: %v\n%s", p.Name(), p.err, p.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w\n%s", p.Name(), err, p.LogTail())
		case <-tick.C:
		}
	}
}

// LogTail returns the end of the program's output.
func (p *Process) LogTail() string {
	const most = 4000
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, len(b)-most):]))
}
