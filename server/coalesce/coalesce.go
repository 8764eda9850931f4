// Package coalesce lets many callers share one call of a function, as
// golang.org/x/sync/singleflight does, but with a stronger rule: the call whose result a
// caller gets began after the caller came. So the result may serve as proof that something
// held after that moment, such as a leadership. The rule is tested in coalesce_test.go.
package coalesce

import (
	"context"
	"sync"
	"time"
)

// Group shares calls of one function. Use New. It is safe for concurrent use.
type Group[T any] struct {
	timeout time.Duration // bound on one call
	f       func(ctx context.Context) (T, error)

	ctx    context.Context // of the calls; ends with Close
	cancel context.CancelFunc
	runs   sync.WaitGroup

	mu      sync.Mutex
	closed  error // why Get fails; nil until Close
	running bool
	next    *call[T] // begins when the one under way has ended
}

type call[T any] struct {
	done   chan struct{}
	result T
	err    error
}

// New returns a group that calls f, with a context that ends after timeout or with Close.
// Close the group to stop its goroutine.
func New[T any](timeout time.Duration, f func(ctx context.Context) (T, error)) *Group[T] {
	g := &Group[T]{timeout: timeout, f: f}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Close ends the call under way and waits for it. Afterwards Get returns reason.
func (g *Group[T]) Close(reason error) {
	g.mu.Lock()
	g.closed = reason
	g.mu.Unlock()
	g.cancel()
	g.runs.Wait()
}

// Get returns the result of a call that began after Get was called. While a call is under
// way, callers wait for the next one. Errors: those of the function, ctx's, or the reason
// that Close was given.
func (g *Group[T]) Get(ctx context.Context) (result T, err error) {
	g.mu.Lock()
	if g.closed != nil {
		defer g.mu.Unlock()
		return result, g.closed
	}
	if g.next == nil {
		g.next = &call[T]{done: make(chan struct{})}
	}
	c := g.next
	if !g.running {
		g.running = true
		g.runs.Go(g.run) // ends when nobody came during the last call
	}
	g.mu.Unlock()
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

func (g *Group[T]) run() {
	for {
		g.mu.Lock()
		c := g.next
		g.next = nil
		if c == nil {
			g.running = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		bounded, cancel := context.WithTimeout(g.ctx, g.timeout)
		c.result, c.err = g.f(bounded)
		cancel()
		close(c.done)
	}
}
