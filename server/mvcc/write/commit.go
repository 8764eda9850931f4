package write

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/txn"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"github.com/sqlbrain/sqlbrain/watch"
)

// commit commits b in one atomic step, and publishes it. The caller answers the requests
// afterwards. waiting are the requests whose changes are in b. On an error nothing was written,
// and nothing will be, except with mvcc.ErrLeaderLost.
func (p *Pipeline) commit(ctx context.Context, b *batch, waiting []*request) result {
	if b.empty() {
		// Nothing to write: the outcomes are those of linearizable reads.
		return result{err: mvcc.PublicError(ctx, p.cfg.Leader.VerifyLeader(ctx))}
	}
	for failures := 1; ; failures++ {
		ops := b.ops(p.commitTime())
		growth := quota.Growth(ops)
		want := p.cfg.Fence.Next(b.alloc.Last(), p.cfg.Count.Next(growth))
		started := time.Now()
		end := p.attempt(ctx, ops, want, len(b.assumed) > 0)
		p.cfg.Metrics.commit.Observe(time.Since(started).Seconds())
		switch {
		case end.outcome == commitAgain:
		case end.outcome != decided || end.err != nil:
			return end
		default:
			p.cfg.Metrics.batchChanges.Observe(float64(len(b.changes)))
			p.cfg.Count.Committed(p.cfg.Fence.Value().Sequence, ops)
			return result{err: p.finish(b, growth)}
		}
		p.cfg.Count.Committed(p.cfg.Fence.Value().Sequence, nil) // resolving has changed the fence row
		p.cfg.Metrics.commitRetries.Inc()
		if !slices.ContainsFunc(waiting, func(r *request) bool { return !r.abandoned() }) {
			return result{err: mvcc.ErrTimeout}
		}
		if err := retry.Database.Wait(ctx, failures); err != nil {
			return result{err: p.cfg.Leader.ErrNotLeader()}
		}
	}
}

// commitTime returns the time of the next commit: that of the leader's clock, but never one before an earlier commit's.
func (p *Pipeline) commitTime() time.Time {
	p.NotBefore(p.cfg.Clock())
	return p.newest
}

// attempt commits once. With assumed, keys were assumed absent, which is the likely cause of a conflict.
func (p *Pipeline) attempt(ctx context.Context, ops []sqlstore.Op, want coder.FenceToken, assumed bool) result {
	written, err := p.cfg.Fence.Commit(ctx, want, p.cfg.Limits.CommitTimeout, assumed,
		func(batch sqlstore.BatchWrite) {
			sqlstore.Add(batch, ops)
		})
	var conflict *sqlstore.Conflict
	switch {
	case err == nil:
		if p.cfg.Leader.Seen(p.cfg.Fence.Value()); written == fence.Written {
			return result{}
		}
		return result{outcome: commitAgain} // its outcome was unknown, and resolved
	case errors.Is(err, fence.ErrDeposed), errors.Is(err, fence.ErrDataLost):
		ended := p.cfg.Leader.End(err)
		if written == fence.NotWritten {
			return result{err: ended}
		}
		// The error must not say that nothing was written: the request would be executed
		// again elsewhere.
		return result{err: fmt.Errorf("%w: %w", mvcc.ErrLeaderLost, err)}
	case written == fence.Unknown:
		return result{err: mvcc.ErrLeaderLost} // ctx ended: the next leader has to resolve it
	case errors.As(err, &conflict) && ctx.Err() == nil && assumed:
		return result{assumptionFailed, err}
	case errors.As(err, &conflict) && ctx.Err() == nil:
		return result{cacheStale, err}
	}
	if ctx.Err() == nil && !errors.Is(err, sqlstore.ErrTooLarge) {
		p.cfg.Leader.Refused(err)
	}
	if errors.Is(err, sqlstore.ErrUnavailable) && !errors.Is(err, sqlstore.ErrFull) ||
		errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // CommitTimeout
		p.cfg.Log.Warn("the database refused a commit, trying again", "error", err)
		return result{commitAgain, err}
	}
	return result{err: mvcc.PublicError(ctx, err)}
}

// finish publishes a durable batch, which has changed the counted rows by growth bytes. The index cache is first: a
// prefetch that begins too late for recordChanges takes index entries from it.
func (p *Pipeline) finish(b *batch, growth int64) error {
	events := make([]*watch.Event, len(b.changes))
	for i := range b.changes {
		events[i] = event(&b.changes[i])
	}
	p.index.update(b)
	err := p.cfg.Leader.Publish(Committed{Events: events, Revision: b.alloc.Last(), Bytes: growth, Auth: b.auth,
		Then: b.onCommit})
	p.recordChanges(b)
	p.decisions.recordAttached(b.changes)
	return err
}

// event returns the watch event of c.
func event(c *txn.Change) *watch.Event {
	e := &watch.Event{Type: watch.Put, Record: c.Record}
	if c.Record.Tombstone {
		e.Type = watch.Delete
	}
	if c.Prev != nil {
		e.PrevRevision = c.Prev.ModRevision
		if c.PrevFull {
			e.Prev = c.Prev
		}
	}
	return e
}
