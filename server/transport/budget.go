package transport

import (
	"container/list"
	"sync"
	"time"
)

// budget bounds the bytes that clients make the server hold, and that they have to do something about: take an
// answer, or send the rest of a request. Beyond it, the claims end that have made no progress for longest: clients
// that do their part do not pay for those that do not. Sending more slowly than leastRate is no progress then.
// Safe for concurrent use.
type budget struct {
	most int64
	// spare is how long a claim without progress is left alone all the same, progressTimeout how long at most; 0: without
	// limit.
	spare, progressTimeout time.Duration

	mu     sync.Mutex
	bytes  int64
	need   int64         // what a claim waits for
	freed  chan struct{} // is closed when bytes fall; nil: nothing waits
	ending int64         // of bytes, those of claims that are being ended
	stale  list.List     // of *claim that have bytes and are not being ended; those that made progress last are last
	timer  *time.Timer
	due    time.Time // of timer; zero: it is not set
}

// claim is what one stream, connection or message holds of a budget.
type claim struct {
	of  *budget
	end func() // is called at most once, when the claim has to go

	// Guarded by of.mu.
	bytes     int64
	began     time.Time // to have bytes, or to have them after a wait for room
	progress  time.Time
	place     *list.Element // in of.stale
	ending    bool
	closed    bool   // nothing is counted any longer
	successor *claim // has the bytes since the claim was left
}

// Bytes returns how many bytes are held.
func (b *budget) Bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

const (
	// smallClaim is how many bytes do not have to wait in reserve.
	smallClaim = 64 << 10
	// leastRate is how many bytes a second a claim has to get while bytes are needed.
	leastRate = 64 << 10
)

// pause has c not end before it is reserved: the server is what it waits for.
func (c *claim) pause() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.unlist()
}

// reserve adds n bytes, and waits before if they are many and do not fit. It gives up when done is closed, and reports
// whether it has waited.
func (c *claim) reserve(n int, done <-chan struct{}) (waited bool) {
	b, size := c.of, int64(n)
	b.mu.Lock()
	defer b.mu.Unlock()
	for !c.closed && size > smallClaim && b.bytes > 0 && b.bytes+size > b.most {
		b.need = max(b.need, size)
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		c.unlist() // as in pause
		b.check()
		waited = true
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
			b.mu.Lock()
		case <-done:
			b.mu.Lock()
			b.wake() // the others say what they need
			size = 0
		}
	}
	if !c.closed {
		c.hold(size)
	}
	b.check()
	return waited
}

// add counts n more bytes. They are progress only if sent is true, or if they are the first.
func (c *claim) add(n int, sent bool) {
	b := c.of
	b.mu.Lock()
	if !c.closed {
		c.hold(int64(n))
		if sent && !c.late() {
			c.progressed()
		}
	}
	b.check()
	b.mu.Unlock()
}

// remove forgets n bytes, which is progress.
func (c *claim) remove(n int) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.successor != nil {
		c = c.successor
	}
	if !c.closed {
		c.release(int64(n))
		c.progressed()
	}
}

// clear forgets all bytes.
func (c *claim) clear() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.release(c.bytes)
}

// The lock is held in the methods below, but for close, leave and onTimer.

func (c *claim) hold(n int64) {
	c.bytes += n
	c.of.bytes += n
	switch {
	case c.ending:
		c.of.ending += n
	case c.place == nil && c.bytes > 0:
		c.began = time.Now()
		c.progress = c.began
		c.place = c.of.stale.PushBack(c)
	}
}

func (c *claim) unlist() {
	if c.place != nil {
		c.of.stale.Remove(c.place)
		c.place = nil
	}
}

func (c *claim) release(n int64) {
	c.bytes -= n
	c.of.bytes -= n
	if c.ending {
		c.of.ending -= n
	}
	if c.bytes == 0 {
		c.unlist()
	}
	if n > 0 {
		c.of.wake()
	}
}

// wake has the claims that wait in reserve look again.
func (b *budget) wake() {
	if b.freed != nil {
		close(b.freed)
		b.freed, b.need = nil, 0
	}
}

// late reports whether c keeps others waiting, and has got its bytes more slowly than leastRate.
func (c *claim) late() bool {
	return c.of.over() && time.Since(c.began) > time.Duration(c.bytes)*(time.Second/leastRate)
}

func (c *claim) progressed() {
	c.progress = time.Now()
	if c.place != nil {
		c.of.stale.MoveToBack(c.place)
	}
}

func (c *claim) forget() {
	if !c.closed {
		c.release(c.bytes)
		c.closed = true
	}
}

// close forgets the bytes of c, and those that are added later.
func (c *claim) close() { c.leave(nil) }

// leave closes c, and gives its bytes to successor if that is not nil.
func (c *claim) leave(successor *claim) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	n := c.bytes
	c.forget()
	if successor != nil && !successor.closed && n > 0 {
		c.successor = successor
		successor.hold(n)
	}
}

// over reports whether claims have to end.
func (b *budget) over() bool { return b.bytes-b.ending+b.need > b.most }

// next returns the claim that has to end next, and in how long; nil if none has.
func (b *budget) next() (*claim, time.Duration) {
	oldest := b.stale.Front()
	allowed := b.progressTimeout
	switch {
	case oldest == nil:
		return nil, 0
	case b.over():
		allowed = b.spare
	case allowed == 0:
		return nil, 0
	}
	c := oldest.Value.(*claim)
	return c, allowed - time.Since(c.progress)
}

// check sees to it that onTimer is called when a claim has to end. It is called when bytes were added or are needed. To
// end a claim takes locks that the caller may hold.
func (b *budget) check() {
	c, left := b.next()
	if c == nil {
		return
	}
	left = max(left, 0)
	if due := time.Now().Add(left); b.due.IsZero() || due.Before(b.due) {
		b.due = due
		if b.timer == nil {
			b.timer = time.AfterFunc(left, b.onTimer)
		} else {
			b.timer.Reset(left)
		}
	}
}

// onTimer ends the claims that have to end.
func (b *budget) onTimer() {
	var ends []func()
	b.mu.Lock()
	b.due = time.Time{}
	for c, left := b.next(); c != nil && left <= 0; c, left = b.next() {
		c.unlist()
		c.ending = true
		b.ending += c.bytes
		ends = append(ends, c.end)
	}
	b.check()
	b.mu.Unlock()
	for _, end := range ends {
		end()
	}
}
