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

// processStart is what readLease is measured from: times since then are on the
// monotonic clock, which nobody sets.
var processStart = time.Now()

// authority is the leader's right to speak for the newest revision without
// asking the database. It does not depend on the lock row, nor on anybody's
// time of day.
type authority struct {
	always bool         // the store is this process's alone
	until  atomic.Int64 // nanoseconds since processStart
	ended  atomic.Bool  // given up for good
}

// extend counts a success of an operation on the chain row that began at started.
func (a *authority) extend(started time.Time) {
	until := int64(started.Sub(processStart) + readLease)
	for {
		cur := a.until.Load()
		if until <= cur || a.until.CompareAndSwap(cur, until) {
			return
		}
	}
}

func (a *authority) valid() bool {
	if a.ended.Load() {
		return false
	}
	return a.always || off("fence") || int64(time.Since(processStart)) < a.until.Load()
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
	started := time.Now()
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
