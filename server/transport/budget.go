package transport

import (
	"container/list"
	"sync"
	"time"
)

// budget bounds the bytes that clients make the server hold, and that they have to do something about: take an
// answer, or send the rest of a request. Beyond it, the claims end that have made no progress for longest: clients
// that do their part do not pay for those that do not. Safe for concurrent use.
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

// smallClaim is how many bytes do not have to wait in reserve.
const smallClaim = 64 << 10

// reserve adds n bytes, and waits before if they are many and do not fit. It gives up when done is closed.
func (c *claim) reserve(n int, done <-chan struct{}) {
	b, size := c.of, int64(n)
	for {
		b.mu.Lock()
		fits := size <= smallClaim || b.bytes == 0 || b.bytes+size <= b.most
		switch {
		case c.closed:
		case fits:
			c.hold(size)
		default:
			b.need = max(b.need, size)
			if b.freed == nil {
				b.freed = make(chan struct{})
			}
			c.progressed() // the server is the one that waits
		}
		b.check()
		over, freed := c.closed || fits, b.freed
		b.mu.Unlock()
		if over {
			return
		}
		select {
		case <-freed:
		case <-done:
			return
		}
	}
}

// add counts n more bytes. They are progress only if sent is true, or if they are the first.
func (c *claim) add(n int, sent bool) {
	b := c.of
	b.mu.Lock()
	if !c.closed {
		c.hold(int64(n))
		if sent {
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

// The lock is held in hold, release, progressed, forget, next and check.

func (c *claim) hold(n int64) {
	if n > 0 && c.bytes == 0 && !c.ending {
		c.progress = time.Now()
		c.place = c.of.stale.PushBack(c)
	}
	c.bytes += n
	c.of.bytes += n
	if c.ending {
		c.of.ending += n
	}
}

func (c *claim) release(n int64) {
	c.bytes -= n
	c.of.bytes -= n
	if c.ending {
		c.of.ending -= n
	}
	if c.bytes == 0 && c.place != nil {
		c.of.stale.Remove(c.place)
		c.place = nil
	}
	if n > 0 && c.of.freed != nil {
		close(c.of.freed)
		c.of.freed, c.of.need = nil, 0
	}
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

// next returns the claim that has to end next, and in how long; nil if none has.
func (b *budget) next() (*claim, time.Duration) {
	oldest := b.stale.Front()
	allowed := b.progressTimeout
	switch {
	case oldest == nil:
		return nil, 0
	case b.bytes-b.ending+b.need > b.most:
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
		b.stale.Remove(c.place)
		c.place, c.ending = nil, true
		b.ending += c.bytes
		ends = append(ends, c.end)
	}
	b.check()
	b.mu.Unlock()
	for _, end := range ends {
		end()
	}
}
