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
func (r *Replica) ReadRevision(ctx context.Context, as auth.Permit, linearizable bool) (int64, error) {
	visible, err := r.newestRevision(ctx, linearizable)
	if err == nil {
		err = as.Check(ctx, r.Attachments)
	}
	return visible, err
}

// newestRevision returns the visible revision: at once if the read is not linearizable, or the read
// lease of the leader is valid, else within the request timeout.
func (r *Replica) newestRevision(ctx context.Context, linearizable bool) (int64, error) {
	if err := r.Stopped(); err != nil {
		return 0, err
	}
	if !linearizable {
		return r.Revision(), nil
	}
	began := r.cfg.Trace.Now()
	if r.HoldsReadLease() {
		return r.traceRead(began, r.Revision(), true), nil
	}
	defer r.recordConfirmation(ctx, time.Now())
	ctx, cancel := r.timeout.Bound(ctx)
	defer cancel()
	for failures := 1; ; failures++ {
		if err := r.Stopped(); err != nil {
			return 0, err
		}
		var err error
		if l := r.leading.Load(); l != nil {
			if err = l.VerifyLeader(ctx); err == nil {
				return r.traceRead(began, r.Revision(), false), nil // after VerifyLeader, which may have waited for a commit
			}
		} else if r.cfg.Leadership == nil {
			return 0, mvcc.ErrNotLeader
		} else if visible, ferr := r.askLeader(ctx); ferr == nil {
			return r.traceRead(began, visible, false), nil
		} else {
			err = ferr
		}
		if errors.Is(err, mvcc.ErrLeaderUnreachable) {
			return 0, err
		}
		if !errors.Is(err, mvcc.ErrNotLeader) && ctx.Err() == nil {
			r.log.Debug("asking for the newest revision failed", "error", err)
		}
		if asking.Wait(ctx, failures) != nil {
			return 0, mvcc.PublicError(ctx, err)
		}
	}
}

// traceRead records a linearizable read at rev, and returns rev.
func (r *Replica) traceRead(began time.Duration, rev int64, leased bool) int64 {
	r.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Read, Began: began, Revision: rev, Leased: leased})
	return rev
}

// slowConfirm is the time after which a confirmation counts as slow, as in etcd.
const slowConfirm = 500 * time.Millisecond

// recordConfirmation records the time since started as that of confirming the newest revision.
func (r *Replica) recordConfirmation(ctx context.Context, started time.Time) {
	took := time.Since(started)
	if s := mvcc.StepsOf(ctx); s != nil {
		s.Confirm += took
	}
	if took > slowConfirm {
		r.metrics.slowConfirms.Inc()
	}
}

// askLeader asks the leader for its revision and waits until this node has applied it.
func (r *Replica) askLeader(ctx context.Context) (int64, error) {
	p, err := r.positions.Get(ctx)
	if err != nil {
		return 0, err
	}
	if err := r.AwaitApplied(ctx, p); err != nil {
		return 0, err
	}
	return r.Revision(), nil
}

// AwaitApplied returns once this node has applied u, whose events it ignores: the revision,
// for readers and for new watchers, the users and roles, and the compaction. Errors: ctx's, the
// database's.
func (r *Replica) AwaitApplied(ctx context.Context, u Update) error {
	if err := r.Divergence.Check(ctx, u.Term, false); err != nil {
		return err
	}
	if u.CompactRevision > 0 {
		r.raiseCompacted(u.CompactRevision)
	}
	r.limit.raise(u.Revision)
	if err := r.Auth.LoadVersion(ctx, u.AuthVersion); err != nil {
		return err
	}
	return r.tso.Wait(ctx, u.Revision)
}

// Position returns the newest revision, for a follower that asks. Errors: ErrNotLeader,
// ErrNotServing, the database's.
func (r *Replica) Position(ctx context.Context) (Update, error) {
	if err := r.VerifyLeader(ctx, auth.System); err != nil {
		return Update{}, err
	}
	return Update{
		Term: r.seen.Term(), Revision: r.Revision(), CompactRevision: r.CompactRevision(),
		AuthVersion: r.Auth.Rows().Version,
	}, nil
}

// Mark returns a compact revision such that nothing at or above it was removed before the
// call. A read compares its revision with it after it has read. The leader knows the mark.
// Followers read it from the table, one query for concurrent readers.
func (r *Replica) Mark(ctx context.Context) (int64, error) {
	if r.HoldsReadLease() {
		return r.CompactRevision(), nil
	}
	return r.marks.Get(ctx)
}

// Await implements read.Node.
func (r *Replica) Await(ctx context.Context, rev int64) error { return r.tso.Wait(ctx, rev) }

// CountRange implements read.Node.
func (r *Replica) CountRange(table bool) {
	if table {
		r.metrics.rangeMisses.Inc()
	} else {
		r.metrics.rangeHits.Inc()
	}
}
