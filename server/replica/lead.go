package replica

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// Lead takes the leadership of the table, which fences the previous leader, and leads until
// ctx ends or another node takes over. It calls leading, if that is not nil, once the node
// serves as the leader. After the end of ctx it finishes the current commit, and answers
// waiting requests with ErrNotLeader. Apply and CatchUp must not be called in the meantime.
// It returns nil if ctx ended, else why the node could not lead or no longer leads. The node
// may lead again unless the error is ErrNotServing.
func (b *Replica) Lead(ctx context.Context, leading func(term int64)) error {
	l, err := b.takeOver(ctx)
	if err != nil {
		if errors.Is(err, fence.ErrDataLost) {
			return b.stopServing(err)
		}
		return err
	}
	return l.run(ctx, leading)
}

// takeOver makes this node the leader, but does not serve as one yet. It fails with errSilent
// if the database keeps it waiting and another node could lead instead.
func (b *Replica) takeOver(ctx context.Context) (_ *leader, err error) {
	if err := b.Stopped(); err != nil {
		return nil, err
	}
	limit := timing.TakeoverSilence
	if b.cfg.Leadership == nil {
		limit = math.MaxInt64
	}
	ctx, patience := newPatience(ctx, limit)
	defer func() { err = patience.stop(err) }()
	store := patience.attended(b.store)
	l := &leader{b: b, ended: make(chan struct{})}
	l.lease = fence.NewReadLease(b.cfg.Exclusive, b.cfg.ConfirmReads, b.cfg.FenceClock)
	l.authority = fence.NewAuthority(fence.AuthorityConfig{
		Store: b.store, Log: b.log, Lease: l.lease, Seen: b.seen, Await: l.awaitRevision, End: l.End, Trace: b.cfg.Trace,
	})
	l.alive, l.die = context.WithCancel(context.Background())
	if l.holder, err = fence.Take(ctx, fence.Config{
		Store: b.store, Log: b.log, Lease: l.lease, Verify: b.seen.Verifier(), Metrics: b.metrics.fence, Trace: b.cfg.Trace,
	}); err != nil {
		return nil, err
	}
	patience.answered()
	taken := time.Now()
	l.lessor = lease.New(lease.Config{
		Store: b.store, Leader: l, View: b, MinTTL: b.cfg.MinLeaseTTL, Policies: b.cfg.TTLPolicies,
		RequestTimeout: b.cfg.RequestTimeout,
		Clock:          b.cfg.LeaseClock, Metrics: b.metrics.leases, Log: b.log,
	})
	if l.pipeline, err = write.New(write.Config{
		Limits: b.cfg.Write,
		Store:  b.store, Fence: l.holder, Reader: b.reader, View: b.view, Revisions: b.tso, Leader: l, Leases: l.lessor,
		Metrics: b.metrics.write, Log: b.log, Tracer: b.cfg.Tracer,
	}); err != nil {
		return nil, err
	}
	b.seen.Note(l.holder.Value())
	if err := l.load(ctx, store, patience, taken); err != nil {
		return nil, err
	}
	l.remover = compact.NewRemover(compact.Config{
		Store: b.store, Revision: b.compacted.Revision, Claim: l.claimRemoval, Patience: b.cfg.compactPatience,
		Logger: b.log, Metrics: b.metrics.compaction,
	})
	l.counts = &countsKeeper{l: l, turn: make(chan struct{}, 1)}
	b.shown.term.Store(l.holder.Value().Term)
	return l, nil
}

// load reads what a leader needs in addition to what a follower knows, and catches up with the fence row, which was
// taken at that time. Two reads are under way at a time, because the database may be far away: one on each of the
// connections that the store keeps.
func (l *leader) load(ctx context.Context, store sqlstore.Store, patience *patience, taken time.Time) error {
	b, held := l.b, l.holder.Value()
	b.alarms.Distrust()
	inTurn := func(reads ...func() error) error {
		for _, read := range reads {
			err := read()
			patience.answered()
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
			func() (err error) { l.tokens, err = auth.LoadTokens(ctx, store, b.cfg.TokenTTL); return err },
			func() error { return b.alarms.Load(ctx) },
		)
	}()
	err := inTurn(
		// A restore that began since this node was opened has found its fence row, and
		// ended there, or brought its own.
		func() error { return repair.RefuseUnfinished(ctx, store) },
		func() error { _, err := b.users.Load(ctx); return err },
		func() error {
			if b.cfg.Exclusive || !l.holder.PredecessorMayAnswer() {
				return nil
			}
			return retry.Sleep(ctx, fence.TakeoverWait-time.Since(taken))
		},
		// Not earlier: the predecessor may not know its last commits yet. Nor under older permissions.
		func() error {
			if err := b.catchUpTo(ctx, history.New(store, b.Mark), held.Revision); err != nil {
				return fmt.Errorf("catching up to revision %d: %w", held.Revision, err)
			}
			return nil
		},
	)
	return errors.Join(err, <-rest)
}

// run serves as the leader until ctx ends or the leadership does.
func (l *leader) run(ctx context.Context, leading func(term int64)) error {
	term := l.holder.Value().Term
	l.lessor.Start() // not earlier: see lease.Lessor
	l.b.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Lead, Token: l.holder.Value()})
	l.b.space.Withdraw()
	l.b.leading.Store(l)
	l.b.log.Info("leading", "term", term, "revision", l.b.Revision(), "compact_revision", l.b.CompactRevision(), "leases",
		l.lessor.Len())
	if leading != nil {
		leading(term)
	}
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer l.die()
	var workers sync.WaitGroup
	for _, work := range []func(context.Context){
		l.pipeline.Run, l.authority.Watch, l.lessor.Run, l.remover.Run, l.autoCompact, l.watchQuota, l.sweepTokens,
		l.counts.run,
	} {
		workers.Go(func() { work(working) })
	}
	select {
	case <-ctx.Done():
		l.handOver()
	case <-l.ended:
	}
	// Requests find that this node does not lead before they are turned away.
	l.leave()
	l.pipeline.Drain()
	cut := time.AfterFunc(l.b.cfg.Handover, cancel)
	<-l.pipeline.Done()
	cut.Stop()
	cancel()
	workers.Wait()
	l.die()
	l.authority.Close(errClosed)
	l.resign()
	if err := l.Lost(); err != nil {
		return err
	}
	l.b.log.Info("stopped leading", "term", term, "revision", l.b.Revision())
	return nil
}

// handOver writes the checkpoints of leases, and the counts of keys, for the next leader.
func (l *leader) handOver() {
	ctx, cancel := context.WithTimeout(context.Background(), l.b.cfg.Handover)
	defer cancel()
	if err := l.lessor.HandOver(ctx); err != nil && l.Lost() == nil {
		l.b.log.Warn("failed to write lease checkpoints, leases will live longer", "error", err)
	}
	if err := l.counts.keep(ctx, 1); err != nil && l.Lost() == nil {
		l.b.log.Warn("failed to store the counts of keys, the next leader will read more of the log", "error", err)
	}
}

// resign records in the fence row that this leader has stopped serving, so that its
// successor need not wait out the read lease. Best effort.
func (l *leader) resign() {
	l.lease.End()
	if l.b.cfg.Exclusive || l.Lost() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.b.cfg.Handover)
	defer cancel()
	err := l.holder.Resign(ctx)
	if errors.Is(err, fence.ErrDataLost) {
		_ = l.End(err)
		return
	}
	if err != nil {
		l.b.log.Warn("failed to record the resignation, the next leader will wait for the read lease to expire", "error", err)
	}
}
