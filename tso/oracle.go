package tso

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Oracle allocates revisions and tracks the visible one, the newest that readers may see. The
// methods may be called from any goroutine, but only one goroutine, the
// sequencer, may allocate and advance.
type Oracle struct {
	visible atomic.Int64

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when the visible revision rises
}

// New returns an oracle whose visible revision is visible, which is durable.
func New(visible int64) *Oracle {
	o := &Oracle{changed: make(chan struct{})}
	o.visible.Store(visible)
	return o
}

// Visible returns the newest visible revision.
func (o *Oracle) Visible() int64 { return o.visible.Load() }

// Allocate starts the allocation of one batch, right after the visible revision.
func (o *Oracle) Allocate() *Allocation { return &Allocation{last: o.Visible()} }

// Advance makes the revisions up to rev visible. Going back is a programming
// error that would break readers silently, so it is refused.
func (o *Oracle) Advance(rev int64) error {
	cur := o.visible.Load()
	if rev < cur {
		return fmt.Errorf("tso: the visible revision cannot go back from %d to %d", cur, rev)
	}
	if rev == cur {
		return nil
	}
	o.visible.Store(rev)
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return nil
}

// Wait blocks until the visible revision has reached rev, or ctx ends.
func (o *Oracle) Wait(ctx context.Context, rev int64) error {
	for {
		o.mu.Lock()
		changed := o.changed
		o.mu.Unlock()
		if o.Visible() >= rev {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Allocation numbers the transactions of one batch. It belongs to the sequencer.
type Allocation struct{ last int64 }

// Peek returns the revision that Take would hand out.
func (a *Allocation) Peek() int64 { return a.last + 1 }

// Take hands out the next revision.
func (a *Allocation) Take() int64 {
	a.last++
	return a.last
}

// Last returns the newest revision handed out, the visible revision if there is none.
func (a *Allocation) Last() int64 { return a.last }
