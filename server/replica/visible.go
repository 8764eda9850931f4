package replica

import (
	"context"
	"errors"
	"time"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// asking is the backoff between attempts to confirm the newest revision. A failover takes less
// than a second.
var asking = retry.Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}

// ReadRevision returns the revision to read at, if as permits the request there.
// The revision of a linearizable read includes every write, and every change of users and
// roles, acknowledged before the call: the leader confirms its leadership, and a follower
// asks the leader and waits until it has applied the answer.
func (b *Replica) ReadRevision(ctx context.Context, as auth.Permit, linearizable bool) (int64, error) {
	visible, err := b.newestRevision(ctx, linearizable)
	if err == nil {
		err = as.Check(ctx, b)
	}
	return visible, err
}

// newestRevision returns the visible revision: at once if the read is not linearizable, or the read
// lease of the leader is valid, else within the request timeout.
func (b *Replica) newestRevision(ctx context.Context, linearizable bool) (int64, error) {
	if err := b.Stopped(); err != nil {
		return 0, err
	}
	if !linearizable {
		return b.Revision(), nil
	}
	began := b.cfg.Trace.Now()
	if l := b.leading.Load(); l != nil && l.lease.Valid() {
		return b.traceRead(began, b.Revision(), true), nil
	}
	defer b.confirmed(ctx, time.Now())
	ctx, cancel := b.bound(ctx)
	defer cancel()
	for failures := 1; ; failures++ {
		if err := b.Stopped(); err != nil {
			return 0, err
		}
		var err error
		if l := b.leading.Load(); l != nil {
			if err = l.VerifyLeader(ctx); err == nil {
				return b.traceRead(began, b.Revision(), false), nil // after VerifyLeader, which may have waited for a commit
			}
		} else if b.cfg.Leadership == nil {
			return 0, mvcc.ErrNotLeader
		} else if visible, ferr := b.askLeader(ctx); ferr == nil {
			return b.traceRead(began, visible, false), nil
		} else {
			err = ferr
		}
		if errors.Is(err, mvcc.ErrLeaderUnreachable) {
			return 0, err
		}
		if !errors.Is(err, mvcc.ErrNotLeader) && ctx.Err() == nil {
			b.log.Debug("asking for the newest revision failed", "error", err)
		}
		if asking.Wait(ctx, failures) != nil {
			return 0, mvcc.PublicError(ctx, err)
		}
	}
}

// traceRead records a linearizable read at rev, and returns rev.
func (b *Replica) traceRead(began time.Duration, rev int64, leased bool) int64 {
	b.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Read, Began: began, Revision: rev, Leased: leased})
	return rev
}

// slowConfirm is the time after which a confirmation counts as slow, as in etcd.
const slowConfirm = 500 * time.Millisecond

// confirmed records the time since started as that of confirming the newest revision.
func (b *Replica) confirmed(ctx context.Context, started time.Time) {
	took := time.Since(started)
	if s := mvcc.StepsOf(ctx); s != nil {
		s.Confirm += took
	}
	if took > slowConfirm {
		b.metrics.slowConfirms.Inc()
	}
}

// askLeader asks the leader for its revision and waits until this node has applied it.
func (b *Replica) askLeader(ctx context.Context) (int64, error) {
	p, err := b.positions.Get(ctx)
	if err != nil {
		return 0, err
	}
	if err := b.awaitShown(ctx, p); err != nil {
		return 0, err
	}
	return b.Revision(), nil
}

// AwaitApplied returns once this node has applied u, whose events it ignores: the revision,
// for readers and for watchers, the users and roles, and the compaction. Errors: ctx's, the
// database's.
func (b *Replica) AwaitApplied(ctx context.Context, u Update) error {
	if err := b.awaitShown(ctx, u); err != nil {
		return err
	}
	return b.published.Wait(ctx, u.Revision)
}

// awaitShown is AwaitApplied without waiting for watchers.
func (b *Replica) awaitShown(ctx context.Context, u Update) error {
	if err := b.Verify(ctx, u.Term, false); err != nil {
		return err
	}
	if u.CompactRevision > 0 {
		b.noteCompacted(u.CompactRevision)
	}
	b.visible.report(u.Revision)
	if err := b.LoadAuth(ctx, u.AuthVersion); err != nil {
		return err
	}
	return b.tso.Wait(ctx, u.Revision)
}

// Position returns the newest revision, for a follower that asks. Errors: ErrNotLeader,
// ErrNotServing, the database's.
func (b *Replica) Position(ctx context.Context) (Update, error) {
	l, err := b.lead()
	if err != nil {
		return Update{}, err
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	if err := l.VerifyLeader(ctx); err != nil {
		return Update{}, mvcc.PublicError(ctx, err)
	}
	return Update{
		Term: b.seen.Term(), Revision: b.Revision(), CompactRevision: b.CompactRevision(), AuthVersion: b.AuthRows().Version,
	}, nil
}

// Mark returns a compact revision such that nothing at or above it was removed before the
// call. A read compares its revision with it after it has read. The leader knows the mark.
// Followers read it from the table, one query for concurrent readers.
func (b *Replica) Mark(ctx context.Context) (int64, error) {
	if l := b.leading.Load(); l != nil && l.lease.Valid() {
		return b.CompactRevision(), nil
	}
	return b.marks.Get(ctx)
}
