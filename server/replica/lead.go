package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
)

// Lead takes the leadership of the table, which fences the previous leader, and leads until
// ctx ends or another node takes over. It calls leading, if that is not nil, once the node
// serves as the leader. After the end of ctx it finishes the current commit, and answers
// waiting requests with ErrNotLeader. Apply and CatchUp must not be called in the meantime.
// It returns nil if ctx ended, else why the node could not lead or no longer leads. The node
// may lead again unless the error is ErrNotServing.
func (r *Replica) Lead(ctx context.Context, leading func(term int64)) error {
	l, err := r.takeOver(ctx)
	if err != nil {
		if errors.Is(err, fence.ErrDataLost) {
			return r.StopServing(err)
		}
		return err
	}
	return l.run(ctx, leading)
}

// run serves as the leader until ctx ends or the leadership does.
func (l *leader) run(ctx context.Context, leading func(term int64)) error {
	r, term := l.replica, l.holder.Value().Term
	l.becomeLeader()
	if leading != nil {
		leading(term)
	}
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer l.die()
	var workers sync.WaitGroup
	for _, work := range []func(context.Context){
		l.pipeline.Run, l.authority.Watch, l.lessor.Run, l.compactor.Run, l.autoCompact, r.Space.RaiseAlarms,
		r.Auth.SweepTokens, l.counts.run, l.countBytes, r.cfg.Leading,
	} {
		if work != nil {
			workers.Go(func() { work(working) })
		}
	}
	select {
	case <-ctx.Done():
		l.handOver()
	case <-l.ended:
	}
	// Requests find that this node does not lead before they are turned away.
	l.stepDown()
	l.pipeline.Drain()
	cut := time.AfterFunc(r.cfg.Handover, cancel)
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
	r.log.Info("stopped leading", "term", term, "revision", r.Revision())
	return nil
}

// becomeLeader makes the node execute requests as the leader.
func (l *leader) becomeLeader() {
	r, token := l.replica, l.holder.Value()
	l.lessor.Start() // not earlier: see lease.Lessor
	r.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Lead, Token: token})
	r.Space.Withdraw()
	r.leading.Store(l)
	r.log.Info("leading", "term", token.Term, "revision", r.Revision(), "compact_revision", r.CompactRevision(), "leases",
		l.lessor.Len())
}

// autoCompact compacts in the configured mode.
func (l *leader) autoCompact(ctx context.Context) {
	l.compactor.RunAuto(ctx, l.replica.cfg.AutoCompaction, l.replica.Revision)
}

// handOver writes the checkpoints of leases, and the counts of keys, for the next leader.
func (l *leader) handOver() {
	ctx, cancel := context.WithTimeout(context.Background(), l.replica.cfg.Handover)
	defer cancel()
	if err := l.lessor.HandOver(ctx); err != nil && l.Lost() == nil {
		l.replica.log.Warn("failed to write lease checkpoints, leases will live longer", "error", err)
	}
	if err := l.counts.keep(ctx, 1); err != nil && l.Lost() == nil {
		l.replica.log.Warn("failed to store the counts of keys, the next leader will read more of the log", "error", err)
	}
}

// resign records in the fence row that this leader has stopped serving, so that its
// successor need not wait out the read lease. Best effort.
func (l *leader) resign() {
	l.lease.End()
	if l.replica.cfg.Exclusive || l.Lost() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.replica.cfg.Handover)
	defer cancel()
	err := l.holder.Resign(ctx)
	if errors.Is(err, fence.ErrDataLost) {
		_ = l.End(err)
		return
	}
	if err != nil {
		l.replica.log.Warn("failed to record the resignation, the next leader will wait for the read lease to expire",
			"error", err)
	}
}
