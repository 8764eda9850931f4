package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// revokeCommand revokes a lease, or one chunk of it.
type revokeCommand struct {
	l       *Lessor
	id      int64
	expired *lease          // revoke only this lease; nil: the one that has the id now
	marked  bool            // the row is marked: this is not the first chunk
	after   []byte          // the last key of the previous chunk
	keys    *write.Prefetch // nil: revoke nothing, because chunks are being revoked already

	// Evaluate sets these.
	more     bool  // the lease still exists, and its row is marked
	revision int64 // of the deletion, or the current one if it deletes nothing
}

// Prefetched returns the keys, see write.Command.
func (c *revokeCommand) Prefetched() *write.Prefetch { return c.keys }

// Evaluate implements write.Command.
func (c *revokeCommand) Evaluate(_ context.Context, tx *write.Tx) error {
	if err := c.l.cfg.Space.CheckDelete(); err != nil {
		return err
	}
	row, ok := tx.Lease(c.id)
	if !ok {
		return mvcc.ErrLeaseNotFound
	}
	if c.keys == nil {
		c.more = true
		return nil
	}
	if c.expired != nil {
		if _, changed := tx.BatchLeases()[c.id]; changed {
			return tx.Defer() // the id may belong to a lease of this batch
		}
		if le, _ := c.l.get(c.id); le != c.expired {
			return mvcc.ErrLeaseNotFound
		}
	}
	c.more = c.keys.More()
	for _, rec := range tx.Attached(c.keys) {
		tx.Delete(rec)
	}
	c.revision = tx.Revision()
	switch {
	case !c.more:
		tx.SetLease(c.id, nil)
		tx.OnCommit(func() { c.l.remove(c.id, c.revision) })
	case !row.Revoking:
		row.Revoking = true
		tx.SetLease(c.id, &row)
		tx.OnCommit(func() { c.l.markRevoking(c.id) })
	}
	return nil
}

// revokeChunk reads keys of the lease and executes c: the whole revocation if the lease holds
// at most revocationKeys keys, else a chunk. It waits for room until ctx ends, and then takes
// at most RequestTimeout.
func (l *Lessor) revokeChunk(ctx context.Context, as auth.Permit, c *revokeCommand) (err error) {
	if err := l.cfg.Space.CheckDelete(); err != nil {
		return err
	}
	bounded, cancel := l.bound(ctx)
	c.keys, err = l.pipeline.PrefetchLease(bounded, c.id, c.after, write.SmallLease)
	cancel()
	if err != nil {
		return err
	}
	room, large := int64(max(c.keys.Len(), 1)), c.keys.More()
	if large { // its keys are read again when there is room
		l.pipeline.Release(c.keys)
		room = revocationRoom
	}
	if err := l.revocations.Acquire(ctx, room); err != nil {
		l.pipeline.Release(c.keys)
		return err
	}
	defer l.revocations.Release(room)
	ctx, cancel = l.bound(ctx)
	defer cancel()
	if large {
		if c.keys, err = l.pipeline.PrefetchLease(ctx, c.id, c.after, revocationKeys); err != nil {
			return err
		}
		if c.keys.More() || c.marked {
			c.keys.Cut(l.chunkSize.get())
		}
	}
	defer l.pipeline.Release(c.keys)
	steps := mvcc.StepsOf(ctx)
	if steps == nil {
		ctx, steps = mvcc.WithSteps(ctx)
	}
	before, n := *steps, c.keys.Len()
	if err := l.pipeline.Submit(ctx, as, c); err != nil {
		return err
	}
	if c.more {
		l.chunkSize.learn(n, steps.Evaluate+steps.Commit-before.Evaluate-before.Commit)
	}
	return nil
}

// markRevoking records that the row of lease id is marked. Its next chunk is due. If the lease
// is not in the heap, expire enqueues it.
func (l *Lessor) markRevoking(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if le := l.leases[id]; le != nil {
		if le.mark(); le.position >= 0 {
			l.schedule(le, l.cfg.Clock())
		}
	}
}

// get returns the lease that has the id, nil if there is none, and whether its row is marked.
func (l *Lessor) get(id int64) (le *lease, revoking bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if le = l.leases[id]; le == nil {
		return nil, false
	}
	return le, le.revoking
}

// expire revokes one chunk of le, whose time is up or whose row is marked. If the chunk failed,
// or is not the last one, expire enqueues le after the leases that are due by then.
func (l *Lessor) expire(ctx context.Context, le *lease) {
	l.mu.Lock()
	c, gone := &revokeCommand{l: l, id: le.id, expired: le, marked: le.revoking, after: le.after}, l.leases[le.id] != le
	l.mu.Unlock()
	if gone {
		return
	}
	err := l.revokeChunk(ctx, auth.System, c)
	switch {
	case errors.Is(err, mvcc.ErrLeaseNotFound), errors.Is(err, mvcc.ErrNotServing), errors.Is(err, mvcc.ErrNotLeader),
		errors.Is(err, mvcc.ErrLeaderLost):
		return
	case err != nil && ctx.Err() != nil:
		return
	case err == nil && !c.marked:
		l.cfg.Metrics.expired.Inc()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	le.due = l.cfg.Clock()
	if err == nil {
		le.after, le.failures = c.keys.Last(), 0
	} else {
		le.failures++
		pause := revoking.Pause(le.failures)
		le.due = le.due.Add(pause)
		if !errors.Is(err, quota.ErrCorrupt) && !errors.Is(err, quota.ErrNoSpace) { // the alarm is in the log
			l.cfg.Metrics.revocationErrors.Inc()
			l.cfg.Log.Warn("revoking an expired lease failed, trying again",
				"lease", fmt.Sprintf("%016x", uint64(le.id)), "attempt", le.failures, "pause", pause, "error", err)
		}
	}
	if l.leases[le.id] == le {
		l.enqueue(le)
	}
}

// revoking has the pauses between attempts to revoke an expired lease.
var revoking = retry.Backoff{Min: 100 * time.Millisecond, Max: 30 * time.Second}
