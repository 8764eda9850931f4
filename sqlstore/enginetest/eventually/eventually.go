// Package eventually waits in tests for what other goroutines and processes do. It is the only way in which
// tests of this repository wait for a condition that they have to ask for again and again.
package eventually

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Deadline is how long a test waits for what takes milliseconds on a quiet machine. It is so long that only
// something that never happens exhausts it, however busy the machine is.
const Deadline = 5 * time.Minute

// The pause between two attempts starts short, because most conditions are true soon, and doubles.
const (
	firstPause = time.Millisecond
	lastPause  = 10 * time.Millisecond
)

// True returns when is returns true. It fails t, with the name of the condition, after Deadline.
func True(t testing.TB, what string, is func() bool) {
	t.Helper()
	Nil(t, Deadline, func(context.Context) error {
		if !is() {
			return fmt.Errorf("waited in vain for: %s", what)
		}
		return nil
	})
}

// Nil calls f until it returns nil. It fails t with f's last error after limit. f runs in the caller's goroutine, so it
// may end the test; its context ends after limit.
func Nil(t testing.TB, limit time.Duration, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := Poll(ctx, f); err != nil {
		t.Fatalf("after %s: %v", limit, err)
	}
}

// Poll calls f until it returns nil, and returns f's last error if ctx ends first.
func Poll(ctx context.Context, f func(context.Context) error) error {
	return Every(ctx, lastPause, f)
}

// Every is Poll with pauses of at most interval, for attempts that are expensive.
func Every(ctx context.Context, interval time.Duration, f func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, interval) {
		err := f(ctx)
		if err == nil {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

// NoLeaks is for TestMain: it runs the tests of a package, and then waits until all goroutines have ended but those
// that options name. It is goleak's VerifyTestMain, which waits for half a second.
func NoLeaks(m goleak.TestingM, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := noLeaks(leakPatience, options...); err != nil {
			fmt.Fprintf(os.Stderr, "the tests passed, and left goroutines: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// leakPatience is how long NoLeaks waits. A goroutine that was not stopped exhausts it.
const leakPatience = time.Minute

func noLeaks(limit time.Duration, options ...goleak.Option) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return Poll(ctx, func(context.Context) error { return goleak.Find(options...) })
}
