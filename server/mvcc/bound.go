package mvcc

import (
	"context"
	"math"
	"sync"
	"time"
)

// Timeout bounds requests. A timer and a context for each request would cost about a tenth
// of a read from memory, and nearly all requests end before anything waits for them. Safe
// for concurrent use.
type Timeout struct {
	after time.Duration

	mu      sync.Mutex
	expired chan struct{} // of the requests that begin before next
	next    time.Time
}

// NewTimeout returns a Timeout that requests reach after d. The longest one is 146 years, to which a slot can be added.
func NewTimeout(d time.Duration) *Timeout { return &Timeout{after: min(d, math.MaxInt64/2)} }

// timeoutSlots is the number of channels that requests share during one timeout.
const timeoutSlots = 16

// Bound returns ctx with the timeout, whose cause is ErrTimeout. The caller ends it with
// cancel.
func (t *Timeout) Bound(ctx context.Context) (bound context.Context, cancel func()) {
	now := time.Now()
	b := &bounded{Context: ctx, expires: now.Add(t.after), expired: t.channel(now)}
	return b, b.end
}

// channel returns a channel that is closed after the timeout, and at most a slot later.
func (t *Timeout) channel(now time.Time) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.expired == nil || !now.Before(t.next) {
		expired, slot := make(chan struct{}), t.after/timeoutSlots
		t.expired, t.next = expired, now.Add(slot)
		time.AfterFunc(t.after+slot, func() { close(expired) })
	}
	return t.expired
}

// Ends returns what ends a wait under ctx: done, after which ctx.Err is the reason, and
// expired, nil if ctx is not of a Timeout, after which the reason is ErrTimeout. To wait for
// both costs less than to wait for ctx.Done.
func Ends(ctx context.Context) (done, expired <-chan struct{}) {
	if b, ok := ctx.(*bounded); ok {
		return b.Context.Done(), b.expired
	}
	return ctx.Done(), nil
}

// bounded is a context of a Timeout. It has no timer, and its parent does not know
// it, until something asks for Done.
type bounded struct {
	context.Context // the parent
	expires         time.Time
	expired         <-chan struct{}

	mu     sync.Mutex
	inner  context.Context // an ordinary context, once it is needed
	cancel context.CancelFunc
	ended  bool
}

// end is the context's cancel function.
func (b *bounded) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if b.cancel != nil {
		b.cancel()
	}
}

// ordinary returns the inner context. Unless it is needed to say that b has ended, or ask is
// true, it may be nil.
func (b *bounded) ordinary(ask bool) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inner == nil && (ask || b.ended || !time.Now().Before(b.expires)) {
		b.inner, b.cancel = context.WithDeadlineCause(b.Context, b.expires, ErrTimeout)
		if b.ended {
			b.cancel()
		}
	}
	return b.inner
}

// state returns the context that says whether and why b has ended. A parent ends a moment before
// the inner context does, and who waited for the parent must not find that b has not ended.
func (b *bounded) state() context.Context {
	if c := b.ordinary(false); c != nil && (c.Err() != nil || b.Context.Err() == nil) {
		return c
	}
	return b.Context
}

// Done implements context.Context.
func (b *bounded) Done() <-chan struct{} { return b.ordinary(true).Done() }

// Err implements context.Context.
func (b *bounded) Err() error { return b.state().Err() }

// Value implements context.Context. It is also how context.Cause finds the cause.
func (b *bounded) Value(key any) any { return b.state().Value(key) }

// Deadline implements context.Context.
func (b *bounded) Deadline() (time.Time, bool) {
	if d, ok := b.Context.Deadline(); ok && d.Before(b.expires) {
		return d, true
	}
	return b.expires, true
}
