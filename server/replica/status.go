package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// StopServing makes the node refuse all requests because of cause, and returns their error.
// The process keeps running, so that its health checks and logs report the cause.
func (r *Replica) StopServing(cause error) error {
	err := fmt.Errorf("%w: %w", mvcc.ErrNotServing, cause)
	for {
		before := r.stopped.Load()
		if before != nil && (errors.Is(*before, fence.ErrDataLost) || !errors.Is(cause, fence.ErrDataLost)) {
			break // a loss is the cause that remains
		}
		if r.stopped.CompareAndSwap(before, &err) {
			r.log.Error("this node stops serving", "error", cause)
			break
		}
	}
	r.Losses.Report(cause) // also if it stopped for another reason before
	return r.Stopped()
}

// RecordLoss writes the data loss marker for another node, which cannot. Errors: fence.ErrUnproven, the
// database's.
func (r *Replica) RecordLoss(ctx context.Context, lost coder.DataLoss) error {
	return fence.RecordFor(ctx, r.store, r.log, r.seen, lost)
}

// Stopped returns nil, or why the node serves nothing: it is not a member, the database lost
// data, or the node shuts down. The error wraps mvcc.ErrNotServing.
func (r *Replica) Stopped() error {
	if err := r.stopped.Load(); err != nil {
		return *err
	}
	return nil
}

// Leader returns the member that leads according to this node, 0 if none.
func (r *Replica) Leader() uint64 {
	switch {
	case r.Stopped() != nil:
		return 0
	case r.Leading():
		return r.MemberID()
	case r.cfg.Leadership != nil:
		return r.cfg.Leadership.Leader()
	default:
		return 0
	}
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
func (r *Replica) Status() Status {
	total, used := r.Space.Size()
	st := Status{
		Revision: r.Revision(), CompactRevision: r.CompactRevision(), Term: r.seen.Term(), Sequence: r.seen.Token().Sequence,
		DBSize: total, DBSizeInUse: used, QuotaBytes: r.Space.Quota(), Leader: r.Leader(), NotServing: r.Stopped(),
	}
	if st.NotServing == nil && st.Leader == 0 {
		st.NotServing = fmt.Errorf("%w: no leader is known", mvcc.ErrNotServing)
	}
	return st
}

// Meta implements export.Node.
func (r *Replica) Meta() export.Meta {
	token := r.seen.Token()
	return export.Meta{Term: token.Term, Sequence: token.Sequence, Auth: r.Auth.Rows(), Alarms: r.Alarms.Stored()}
}

// feedSilence is how long a follower counts as fed after the last commit or heartbeat.
const feedSilence = timing.LeaderSilence

// processStart is the start of measured times on the monotonic clock, which is never set. It
// does not advance while the machine is suspended.
var processStart = time.Now()

// Fed returns nil if the node, and so its watchers, learn of new commits: because it leads,
// because the leader sends them, or because it reads the log.
func (r *Replica) Fed() error {
	if err := r.Stopped(); err != nil || r.Leading() {
		return err
	}
	if quiet := time.Since(processStart) - time.Duration(r.fed.Load()); quiet > feedSilence {
		return fmt.Errorf("no commit or heartbeat for %s", quiet.Truncate(time.Second))
	}
	return nil
}

// recordFed records that the node knows the newest commit.
func (r *Replica) recordFed() { r.fed.Store(int64(time.Since(processStart))) }
