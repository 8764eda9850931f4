package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

const (
	// readLease is how long a leader may answer from memory after the start of
	// its last successful look at, or change of, the chain row.
	readLease = 100 * time.Millisecond
	// takeoverWait is how long a new leader keeps quiet behind its own change of
	// the chain row: by then its predecessor's read lease is over, on clocks that
	// differ in speed by less than half. It changed the row after anything its
	// predecessor can have seen there. For the same reason, and as long, a follower
	// keeps to itself what it found in the table and the leader has not told of.
	takeoverWait = readLease + readLease/2
)

// processStart is what times of the monotonic clock are measured from. That clock is
// never set; it stops while the machine is suspended.
var processStart = time.Now()

// authority is the leader's right to speak for the newest revision without
// asking the database. It does not depend on the lock row, nor on a time of day.
type authority struct {
	always bool                 // the store is this process's alone
	never  bool                 // every question is the database's
	now    func() time.Duration // leaseClock
	until  atomic.Int64         // on that clock, in nanoseconds
	ended  atomic.Bool          // given up for good
}

// extend counts a success of an operation on the chain row that began at started, on
// the authority's clock.
func (a *authority) extend(started time.Duration) {
	if started < 0 {
		return // the clock could not be read
	}
	until := int64(started + readLease)
	for {
		cur := a.until.Load()
		if until <= cur || a.until.CompareAndSwap(cur, until) {
			return
		}
	}
}

// valid reports whether the leader may answer without asking the database. It holds at
// some time during the call, and no longer: a process can be stopped between this
// look and the answer. An answer is then late, but it was right when it was asked for.
func (a *authority) valid() bool {
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

// confirm returns nil if no other leader can have acknowledged anything before
// the call. It asks the database unless the read lease says so; many callers
// share one question. Errors: ErrNotLeader, once deposed, and the database's.
func (l *leader) confirm(ctx context.Context) error {
	if l.authority.valid() {
		return nil
	}
	_, err := l.confirmations.get(ctx)
	if err != nil && l.alive.Err() != nil {
		return l.turnedAway() // whatever the question ended with
	}
	return err
}

// readChain looks at the chain row, and judges it. Errors: ErrNotLeader or
// ErrNotServing with the reason, or the database's, which are no verdict.
func (l *leader) readChain(ctx context.Context) (struct{}, error) {
	if l.authority.ended.Load() {
		return struct{}{}, l.turnedAway()
	}
	acked := *l.seen.Load()
	started := l.authority.now()
	raw, err := l.store.Get(ctx, coder.ChainKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return struct{}{}, l.end(fmt.Errorf("%w: the chain row is gone", errDataLost))
	}
	if err != nil {
		return struct{}{}, fmt.Errorf("confirming the leadership: %w", err)
	}
	cur, err := coder.DecodeChain(raw)
	if err != nil {
		return struct{}{}, l.end(fmt.Errorf("%w: %w", errDataLost, err))
	}
	if err := judgeChain(acked, cur); err != nil {
		return struct{}{}, l.end(err)
	}
	// A commit of this leader's may be in the table before the leader knows. Others
	// may have seen it there by now, so readers must see it too.
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.alive, cancel)()
	if err := l.tso.Wait(waiting, cur.Revision); err != nil {
		return struct{}{}, cmp.Or(l.lost(), err)
	}
	l.authority.extend(started)
	return struct{}{}, nil
}

// watchFence keeps an idle leader aware of whether it still is one.
func (l *leader) watchFence(ctx context.Context) {
	tick := time.NewTicker(fenceInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := l.checkLost(ctx); errors.Is(err, errDataLost) {
			_ = l.end(err) // another member has seen more than this one
			return
		}
		if _, err := l.confirmations.get(ctx); err != nil && ctx.Err() == nil && l.lost() == nil {
			l.log.Warn("cannot read the chain row", "error", err)
		}
	}
}
