package fence

import (
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

const (
	// leaseTime is the time after the start of a success on the fence row for which a
	// leader may answer from memory.
	leaseTime = timing.ReadLease
	// TakeoverWait is the time that a new leader waits after its own change of the fence row
	// row: by then the read lease of its predecessor is over. For the same reason a
	// follower waits as long before it shows what it found in the table and the leader
	// has not reported.
	TakeoverWait = timing.TakeoverWait
)

// ReadLease is the leader's right to speak for the newest revision without asking the
// database. It does not depend on the lock row, nor on a time of day. It is safe for
// concurrent use.
type ReadLease struct {
	always bool                 // the store is this process's alone
	never  bool                 // every question is the database's
	now    func() time.Duration // Clock
	until  atomic.Int64         // on that clock, in nanoseconds
	ended  atomic.Bool          // given up for good
}

// NewReadLease returns a lease that is not valid yet. With exclusive no other process can
// use the store, and the lease is always valid. With confirm, which takes precedence, it
// never is. clock replaces the system's clock; nil: that one.
func NewReadLease(exclusive, confirm bool, clock func() time.Duration) *ReadLease {
	if clock == nil {
		clock = Clock
	}
	return &ReadLease{always: exclusive && !confirm, never: confirm, now: clock}
}

// Now returns the time on the lease's clock, negative if it cannot be read.
func (a *ReadLease) Now() time.Duration { return a.now() }

// End makes the lease invalid for good.
func (a *ReadLease) End() { a.ended.Store(true) }

// Ended reports whether End was called.
func (a *ReadLease) Ended() bool { return a.ended.Load() }

// Expire makes the lease invalid until it is extended.
func (a *ReadLease) Expire() { a.until.Store(0) }

// Extend counts a success of an operation on the fence row that began at started, on
// the lease's clock.
func (a *ReadLease) Extend(started time.Duration) {
	if started < 0 {
		return // the clock could not be read
	}
	until := int64(started + leaseTime)
	for {
		cur := a.until.Load()
		if until <= cur || a.until.CompareAndSwap(cur, until) {
			return
		}
	}
}

// Valid reports whether the leader may answer without asking the database. It holds at
// some time during the call, and no longer: a process can be stopped between this
// look and the answer. An answer is then late, but it was right when it was asked for.
func (a *ReadLease) Valid() bool {
	switch {
	case a.ended.Load():
		return false
	case a.always || off("fence"):
		return true
	case a.never:
		return false
	}
	now := a.now()
	return now >= 0 && int64(now) < a.until.Load()
}
