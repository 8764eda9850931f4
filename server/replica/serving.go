package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// stopServing makes the node refuse all requests because of cause, and returns their error.
// The process keeps running, so that its health checks and logs report the cause.
func (b *Replica) stopServing(cause error) error {
	err := fmt.Errorf("%w: %w", mvcc.ErrNotServing, cause)
	for {
		before := b.stopped.Load()
		if before != nil && (errors.Is(*before, fence.ErrDataLost) || !errors.Is(cause, fence.ErrDataLost)) {
			break // a loss is the cause that remains
		}
		if b.stopped.CompareAndSwap(before, &err) {
			b.log.Error("this node stops serving", "error", cause)
			break
		}
	}
	b.losses.Report(cause) // also if it stopped for another reason before
	return b.Stopped()
}

// StopServing makes the node refuse all requests because of cause.
func (b *Replica) StopServing(cause error) { _ = b.stopServing(cause) }

// TellLosses sets what makes another node record a loss while this one cannot.
func (b *Replica) TellLosses(tell func(context.Context, coder.DataLoss) error) { b.losses.Tell(tell) }

// RecordLoss writes down that the database lost data, for another node, which cannot. Errors: fence.ErrUnproven, the
// database's.
func (b *Replica) RecordLoss(ctx context.Context, lost coder.DataLoss) error {
	return fence.RecordFor(ctx, b.store, b.log, b.seen, lost)
}

// Stopped returns nil, or why the node serves nothing: it is not a member, the database lost
// data, or the node shuts down. The error wraps mvcc.ErrNotServing.
func (b *Replica) Stopped() error {
	if err := b.stopped.Load(); err != nil {
		return *err
	}
	return nil
}

// Leader returns the member that leads according to this node, 0 if none.
func (b *Replica) Leader() uint64 {
	switch {
	case b.Stopped() != nil:
		return 0
	case b.Leading():
		return b.MemberID()
	case b.cfg.Leadership != nil:
		return b.cfg.Leadership.Leader()
	default:
		return 0
	}
}

// notServing returns nil while the node serves and knows a leader, else the reason.
func (b *Replica) notServing() error {
	if err := b.Stopped(); err != nil {
		return err
	}
	if b.Leader() == 0 {
		return fmt.Errorf("%w: no leader is known", mvcc.ErrNotServing)
	}
	return nil
}

// Status is the state of a node, for Maintenance.Status, health checks and metrics.
type Status struct {
	Revision        int64
	CompactRevision int64
	Term            int64
	Sequence        int64 // the number of commits, in place of raft's index
	DBSize          int64
	DBSizeInUse     int64
	QuotaBytes      int64  // 0: none
	Leader          uint64 // the member that leads according to this node, 0 if none
	NotServing      error  // why the node does not serve or knows no leader; nil while it serves
}

// Status returns the node's state. Sizes are refreshed every few seconds.
func (b *Replica) Status() Status {
	total, used := b.space.Size()
	return Status{
		Revision: b.Revision(), CompactRevision: b.CompactRevision(), Term: b.seen.Term(), Sequence: b.seen.Token().Sequence,
		DBSize: total, DBSizeInUse: used, QuotaBytes: b.space.Quota(), Leader: b.Leader(), NotServing: b.notServing(),
	}
}
