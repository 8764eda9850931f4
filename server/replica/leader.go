package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// leader is one leadership: what a replica has only while it leads. It implements
// write.Leader.
type leader struct {
	replica *Replica

	holder    *fence.Holder // the pipeline's while it runs
	lease     *fence.ReadLease
	authority *fence.Authority

	pipeline  *write.Pipeline
	lessor    *lease.Lessor
	compactor *compact.Compactor
	counts    *countsKeeper
	bytes     *quota.Count

	alive  context.Context // ends with the leadership
	die    context.CancelFunc
	reason atomic.Pointer[error] // why the leadership ended, nil if it was not taken away
	ended  chan struct{}         // closed with reason set
}

// End ends the leadership because of cause, and returns the error of requests that
// were not executed. If the database lost data the node stops serving.
func (l *leader) End(cause error) error {
	if errors.Is(cause, sqlstore.ErrRowMissing) {
		l.replica.seen.ObserveLoss()
	}
	err := fmt.Errorf("%w: %w", mvcc.ErrNotLeader, cause)
	if errors.Is(cause, fence.ErrDataLost) || l.replica.cfg.Leadership == nil {
		// This node's state may be wrong, or cannot follow another leader.
		err = l.replica.StopServing(cause)
	}
	if l.reason.CompareAndSwap(nil, &err) {
		l.replica.log.Warn("the leadership ended", "error", cause)
		l.stepDown()
		l.die()
		close(l.ended)
	}
	return *l.reason.Load()
}

// stepDown clears the leadership and records when this node was last up to date.
func (l *leader) stepDown() {
	l.replica.recordFed()
	l.replica.leading.CompareAndSwap(l, nil)
}

// Lost returns why the leadership was taken away, nil if it was not.
func (l *leader) Lost() error {
	if err := l.reason.Load(); err != nil {
		return *err
	}
	return nil
}

// ErrNotLeader returns the error of a request that was not executed.
func (l *leader) ErrNotLeader() error {
	if err := l.Lost(); err != nil {
		return err
	}
	return fmt.Errorf("%w: the leadership has ended", mvcc.ErrNotLeader)
}

// VerifyLeader implements write.Leader.
func (l *leader) VerifyLeader(ctx context.Context) error {
	err := l.authority.VerifyLeader(ctx)
	if err != nil && l.alive.Err() != nil {
		return l.ErrNotLeader() // and not the error of the look at the fence row
	}
	return err
}

// Await waits until revision rev is visible on this leader, or it stops leading.
func (l *leader) Await(ctx context.Context, rev int64) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.alive, cancel)()
	if err := l.replica.tso.Wait(waiting, rev); err != nil {
		return cmp.Or(l.Lost(), err)
	}
	return nil
}

// Ended implements write.Leader.
func (l *leader) Ended() <-chan struct{} { return l.ended }

// AuthRows implements write.Leader.
func (l *leader) AuthRows() *auth.Rows { return l.replica.Auth.Rows() }

// Seen implements write.Leader.
func (l *leader) Seen(token coder.FenceToken) { l.replica.seen.Observe(token) }

// Refused implements write.Leader.
func (l *leader) Refused(err error) {
	l.replica.Space.Refused(err)
	if f := l.replica.cfg.CommitFailed; f != nil {
		f()
	}
}

// Publish implements write.Leader.
func (l *leader) Publish(c write.Committed) error {
	l.replica.Space.Grow(c.Bytes)
	l.replica.Auth.Raise(c.Auth) // before the commit can be read
	return l.replica.publish(c.Events, c.Revision, c.Then...)
}

// setRow writes a row of the node in the write pipeline.
func (l *leader) setRow(ctx context.Context, key, value []byte) error {
	ctx, cancel := l.replica.timeout.Bound(ctx)
	defer cancel()
	return l.pipeline.Submit(ctx, auth.System, write.Func(func(_ context.Context, tx *write.Tx) error {
		tx.SetRow(key, value)
		return nil
	}))
}
