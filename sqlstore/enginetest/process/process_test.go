package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

func start(t *testing.T, script string) *Process {
	t.Helper()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	p, err := Start(Options{Dir: t.TempDir(), Log: filepath.Join(t.TempDir(), "log")}, shell, "-c", script)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Kill()) })
	return p
}

func TestStopWaitsForTheEnd(t *testing.T) {
	p := start(t, `trap 'echo stopped; exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
	require.NoError(t, p.Await(t.Context(), time.Minute, time.Millisecond, func(context.Context) error {
		if p.LogTail(100) != "ready" {
			return errors.New("not ready")
		}
		return nil
	}))
	require.True(t, p.Running())
	require.NoError(t, p.Stop())
	require.False(t, p.Running())
	var exit *exec.ExitError
	require.ErrorAs(t, p.Err(), &exit)
	require.Equal(t, 3, exit.ExitCode())
	require.Equal(t, "stopped", p.LogTail(8))
	require.NoError(t, p.Stop(), "of a program that has ended")
	require.NoError(t, p.Kill(), "of a program that has ended")
	require.ErrorIs(t, p.Signal(os.Interrupt), os.ErrProcessDone)
}

// A shell ignores interrupts for its jobs in the background, and so does what they start.
func TestInterruptEndsAProgramOfAJobInTheBackground(t *testing.T) {
	signal.Ignore(os.Interrupt)
	defer signal.Reset(os.Interrupt)
	p := start(t, "exec sleep 600")
	require.NoError(t, p.Signal(os.Interrupt))
	var exit *exec.ExitError
	require.ErrorAs(t, p.Err(), &exit)
	require.Equal(t, syscall.SIGINT, exit.Sys().(syscall.WaitStatus).Signal())
}

func TestAwaitReturnsTheReason(t *testing.T) {
	p := start(t, "echo no such file; exit 1")
	never := errors.New("never ready")
	err := p.Await(t.Context(), time.Minute, time.Millisecond, func(context.Context) error { return never })
	require.ErrorIs(t, err, ErrEnded)
	require.ErrorContains(t, err, "no such file")
	p = start(t, "exec sleep 60")
	err = p.Await(t.Context(), time.Millisecond, time.Millisecond, func(context.Context) error { return never })
	require.ErrorIs(t, err, never)
}

func TestAProgramThatDoesNotStartIsAnError(t *testing.T) {
	_, err := Start(Options{Log: filepath.Join(t.TempDir(), "log")}, filepath.Join(t.TempDir(), "nothing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
