package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
)

// terminal is the testing.TB of a command: what fails or is skipped ends it, and
// its cleanups run then, as a test's do.
type terminal struct {
	testing.TB // nothing else of it is used
	cleanups   []func()
	failed     bool
}

// run calls do and then the cleanups, and returns the exit code.
func run(do func(*terminal)) int {
	t := &terminal{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.cleanUp()
		do(t)
	}()
	<-done
	if t.failed {
		return 1
	}
	return 0
}

func (t *terminal) cleanUp() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

func (t *terminal) Helper()           {}
func (t *terminal) Failed() bool      { return t.failed }
func (t *terminal) Cleanup(f func())  { t.cleanups = append(t.cleanups, f) }
func (t *terminal) Log(args ...any)   { fmt.Fprintln(os.Stderr, args...) }
func (t *terminal) Error(args ...any) { t.Log(args...); t.failed = true }
func (t *terminal) Fatal(args ...any) { t.Error(args...); runtime.Goexit() }
func (t *terminal) Skip(args ...any)  { t.Fatal(args...) }

func (t *terminal) Logf(format string, args ...any)   { t.Log(fmt.Sprintf(format, args...)) }
func (t *terminal) Errorf(format string, args ...any) { t.Error(fmt.Sprintf(format, args...)) }
func (t *terminal) Fatalf(format string, args ...any) { t.Fatal(fmt.Sprintf(format, args...)) }

func (t *terminal) TempDir() string {
	dir, err := os.MkdirTemp("", "sqlbrain-cluster-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	return dir
}
