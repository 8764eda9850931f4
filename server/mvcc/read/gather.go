package read

import (
	"cmp"
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
	// maxReadBytes is about how many bytes a read of several keys returns at most.
	maxReadBytes = 4 << 20
)

// gatherer reads single keys, those of many callers in one statement: a read takes the keys that came while earlier
// ones were under way. As with package coalesce, a read begins after all of its callers came, so that it sees whatever
// was committed before. It has a goroutine only while callers wait. Safe for concurrent use.
type gatherer[V any] struct {
	// read returns the values of keys. With more, it has not read those that are not found, as the others are large.
	read    func(ctx context.Context, keys [][]byte) (values []V, more bool, err error)
	found   func(V) bool
	timeout *mvcc.Timeout // of a read of several callers

	mu      sync.Mutex
	reads   int // under way
	waiting []*gathered[V]
	most    int // keys of the next read; 0: maxReadKeys
}

// gathered is a caller that waits for the value of key.
type gathered[V any] struct {
	ctx   context.Context
	key   []byte
	in    *gatheredRead[V] // nil: none yet
	value V
	err   error
	done  chan struct{} // closed after value and err are set
}

// gatheredRead is a read of several callers. It ends when none of them waits for it.
type gatheredRead[V any] struct {
	callers []*gathered[V]
	waiting int
	ctx     context.Context
	cancel  func()
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
		g.leave(c)
		return value, ctx.Err()
	case <-expired:
		g.leave(c)
		return value, mvcc.ErrTimeout
	}
}

// leave ends the read of c if no other caller waits for it.
func (g *gatherer[V]) leave(c *gathered[V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.in == nil {
		return
	}
	if c.in.waiting--; c.in.waiting == 0 {
		c.in.cancel()
	}
}

// alone reads key by itself, without waiting for other reads.
func (g *gatherer[V]) alone(ctx context.Context, key []byte) (value V, err error) {
	values, _, err := g.read(ctx, [][]byte{key})
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
		r := g.next()
		if r == nil {
			return
		}
		keys := make([][]byte, len(r.callers))
		for i, c := range r.callers {
			keys[i] = c.key
		}
		values, more, err := g.read(r.ctx, keys)
		r.cancel()
		var unread []*gathered[V]
		for i, c := range r.callers {
			if err == nil && more && !g.found(values[i]) {
				unread = append(unread, c)
				continue
			}
			if c.err = err; err == nil {
				c.value = values[i]
			}
			close(c.done)
		}
		g.end(r, unread)
	}
}

// end lets the callers that r has not read for wait for the next read, which is as small as that needs.
func (g *gatherer[V]) end(r *gatheredRead[V], unread []*gathered[V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch n := len(r.callers); {
	case len(unread) > 0:
		g.most = max(n-len(unread), 1)
		for _, c := range unread {
			c.in = nil
		}
		g.waiting = append(unread, g.waiting...)
	case n == g.most:
		g.most = min(2*n, maxReadKeys)
	}
}

// next returns the next read. If no caller waits for it, it returns nil and ends.
func (g *gatherer[V]) next() *gatheredRead[V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		n := min(len(g.waiting), cmp.Or(g.most, maxReadKeys))
		callers := g.waiting[:n:n]
		if g.waiting = g.waiting[n:]; n == 0 {
			g.reads--
			g.waiting = nil
			return nil
		}
		callers = slices.DeleteFunc(callers, func(c *gathered[V]) bool { return c.ctx.Err() != nil }) // it has left
		if len(callers) == 0 {
			continue
		}
		// A caller that leaves does not end what others wait for. The trace is that of the first one.
		bounded, end := g.timeout.Bound(context.WithoutCancel(callers[0].ctx))
		ctx, cancel := context.WithCancel(bounded)
		r := &gatheredRead[V]{callers: callers, waiting: len(callers), ctx: ctx, cancel: func() { cancel(); end() }}
		for _, c := range callers {
			c.in = r
		}
		return r
	}
}
