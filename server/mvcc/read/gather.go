package read

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

const (
	// maxReads is how many reads of a gatherer are under way at most. More would be smaller ones, which cost more; with
	// one, a read that takes long would hold up all others.
	maxReads = 2
	// maxReadKeys is the most keys of a read.
	maxReadKeys = 64
)

// gatherer reads single keys, those of many callers in one statement: a read takes the keys that came while earlier
// ones were under way. As with package coalesce, a read begins after all of its callers came, so that it sees whatever
// was committed before. It has a goroutine only while callers wait. Safe for concurrent use.
type gatherer[V any] struct {
	read    func(ctx context.Context, keys [][]byte) ([]V, error)
	timeout *mvcc.Timeout // of a read of several callers

	mu      sync.Mutex
	reads   int // under way
	waiting []*gathered[V]
}

// gathered is a caller that waits for the value of key.
type gathered[V any] struct {
	ctx   context.Context
	key   []byte
	value V
	err   error
	done  chan struct{} // closed after value and err are set
}

// get returns the value of key. Errors: those of read, ctx's, mvcc.ErrTimeout.
func (g *gatherer[V]) get(ctx context.Context, key []byte) (value V, err error) {
	g.mu.Lock()
	if g.reads < maxReads {
		g.reads++
		g.mu.Unlock()
		defer g.passOn()
		return g.alone(ctx, key) // here, without a change of goroutines
	}
	c := &gathered[V]{ctx: ctx, key: key, done: make(chan struct{})}
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()
	ended, expired := mvcc.Ends(ctx)
	select {
	case <-c.done:
		return c.value, c.err
	case <-ended:
		return value, ctx.Err()
	case <-expired:
		return value, mvcc.ErrTimeout
	}
}

// alone reads key by itself, without waiting for other reads.
func (g *gatherer[V]) alone(ctx context.Context, key []byte) (value V, err error) {
	values, err := g.read(ctx, [][]byte{key})
	if err != nil {
		return value, err
	}
	return values[0], nil
}

// passOn ends the read of a caller, after which those that wait are next.
func (g *gatherer[V]) passOn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.reads--
		return
	}
	go g.run() // ends when no caller waits
}

// run reads for the callers that wait.
func (g *gatherer[V]) run() {
	for {
		runtime.Gosched() // requests that can run add their keys first
		callers := g.next()
		if len(callers) == 0 {
			return
		}
		keys := make([][]byte, len(callers))
		for i, c := range callers {
			keys[i] = c.key
		}
		// A caller that leaves does not end what others wait for. The trace is that of the first one.
		ctx, cancel := g.timeout.Bound(context.WithoutCancel(callers[0].ctx))
		values, err := g.read(ctx, keys)
		cancel()
		for i, c := range callers {
			if c.err = err; err == nil {
				c.value = values[i]
			}
			close(c.done)
		}
	}
}

// next returns the callers of the next read. If there are none, it ends the read.
func (g *gatherer[V]) next() []*gathered[V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		n := min(len(g.waiting), maxReadKeys)
		callers := g.waiting[:n:n]
		if g.waiting = g.waiting[n:]; n == 0 {
			g.reads--
			g.waiting = nil
			return nil
		}
		callers = slices.DeleteFunc(callers, func(c *gathered[V]) bool { return c.ctx.Err() != nil }) // it has left
		if len(callers) > 0 {
			return callers
		}
	}
}
