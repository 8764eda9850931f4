package replica

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// takeOver makes this node the leader, but does not serve as one yet. It fails with errNoProgress
// if the database keeps it waiting and another node could lead instead.
func (r *Replica) takeOver(ctx context.Context) (_ *leader, err error) {
	if err := r.Stopped(); err != nil {
		return nil, err
	}
	limit := timing.TakeoverSilence
	if r.cfg.Leadership == nil {
		limit = math.MaxInt64
	}
	ctx, progress := newProgressDeadline(ctx, limit)
	defer func() { err = progress.stop(err) }()
	store := progress.observe(r.store)
	l := &leader{replica: r, ended: make(chan struct{})}
	l.lease = fence.NewReadLease(r.cfg.Exclusive, r.cfg.ConfirmReads, r.cfg.FenceClock)
	l.alive, l.die = context.WithCancel(context.Background())
	if l.holder, err = fence.Acquire(ctx, fence.Config{
		Store: r.store, Log: r.log, Lease: l.lease, Verify: r.seen.Verifier(), Metrics: r.metrics.fence,
		InDoubt: r.cfg.CommitFailed, Trace: r.cfg.Trace,
	}); err != nil {
		return nil, err
	}
	progress.extend()
	taken := time.Now()
	l.authority = fence.NewAuthority(fence.AuthorityConfig{
		Store: r.store, Log: r.log, Lease: l.lease, Seen: r.seen, Await: l.Await, End: l.End, Trace: r.cfg.Trace,
		Term: l.holder.Value().Term,
	})
	l.bytes = quota.NewCount(l.holder.Value())
	l.lessor = lease.New(lease.Config{
		Store: r.store, Leader: l, Alarms: r.Alarms, Space: r.Space, View: r.Attachments,
		MinTTL: r.cfg.MinLeaseTTL, Policies: r.cfg.TTLPolicies,
		RequestTimeout: r.cfg.RequestTimeout,
		Clock:          r.cfg.LeaseClock, Metrics: r.metrics.leases, Log: r.log,
	})
	if l.pipeline, err = write.New(write.Config{
		Limits: r.cfg.Write,
		Store:  r.store, Fence: l.holder, Count: l.bytes, Reader: r.Reader, View: r.view, Revisions: r.tso, Leader: l,
		Leases: l.lessor, Metrics: r.metrics.write, Log: r.log, Tracer: r.cfg.Tracer, Clock: r.cfg.CommitClock,
	}); err != nil {
		return nil, err
	}
	r.seen.Observe(l.holder.Value())
	if err := l.load(ctx, store, progress, taken); err != nil {
		return nil, err
	}
	l.compactor = compact.NewCompactor(compact.CompactorConfig{
		Remover: compact.Config{
			Store: r.store, Count: l.bytes, Exclusive: r.cfg.Exclusive, Deadline: r.cfg.compactDeadline, Logger: r.log,
			Metrics: r.metrics.compaction,
		},
		Mark: r.compacted, Alarms: r.Alarms, Pipeline: l.pipeline, Timeout: r.timeout, Stopped: r.Stopped,
		Raised: r.raiseCompacted,
	})
	l.counts = &countsKeeper{l: l, turn: make(chan struct{}, 1)}
	r.Divergence.checkedIn(l.holder.Value().Term)
	return l, nil
}

// load reads what a leader needs in addition to what a follower knows, and catches up with the fence row, which was
// taken at that time. Two reads are under way at a time, because the database may be far away: one on each of the
// connections that the store keeps.
func (l *leader) load(ctx context.Context, store sqlstore.Store, progress *progressDeadline, taken time.Time) error {
	r, held := l.replica, l.holder.Value()
	r.Alarms.Distrust()
	inTurn := func(reads ...func() error) error {
		for _, read := range reads {
			err := read()
			progress.extend()
			if err != nil {
				return err
			}
		}
		return nil
	}
	rest := make(chan error, 1)
	go func() {
		rest <- inTurn(
			func() error { return l.lessor.Load(ctx, store, l.pipeline) },
			func() error { return r.Auth.LoadTokens(ctx, store, r.cfg.TokenTTL) },
			func() error { return r.Alarms.Load(ctx) },
			func() error {
				newest, err := history.NewestTime(ctx, store)
				if ahead := time.Until(newest); ahead > time.Second {
					r.log.Warn("the newest commit is later than this host's clock: until the clock reaches it, all commits "+
						"have its time", "newest", newest, "ahead", ahead)
				}
				l.pipeline.NotBefore(newest)
				return err
			},
		)
	}()
	err := inTurn(
		// A restore that began since this node was opened has found its fence row, and
		// ended there, or brought its own.
		func() error { return repair.RefuseUnfinished(ctx, store) },
		func() error { _, err := r.Auth.Load(ctx); return err },
		func() error {
			if r.cfg.Exclusive || !l.holder.PredecessorMayAnswer() {
				return nil
			}
			return retry.Sleep(ctx, fence.TakeoverWait-time.Since(taken))
		},
		// Not earlier: the predecessor may not know its last commits yet. Nor under older permissions.
		func() error {
			if err := r.catchUpTo(ctx, history.New(store, r.Mark), held.Revision); err != nil {
				return fmt.Errorf("catching up to revision %d: %w", held.Revision, err)
			}
			return nil
		},
	)
	return errors.Join(err, <-rest)
}
