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
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// leader is one leadership: what a replica has only while it leads. It implements
// write.Leader.
type leader struct {
	b *Replica

	holder    *fence.Holder // the pipeline's while it runs
	lease     *fence.ReadLease
	authority *fence.Authority

	pipeline *write.Pipeline
	lessor   *lease.Lessor
	tokens   *auth.Tokens
	remover  *compact.Remover
	counts   *countsKeeper

	alive  context.Context // ends with the leadership
	die    context.CancelFunc
	reason atomic.Pointer[error] // why the leadership ended, nil if it was not taken away
	ended  chan struct{}         // closed with reason set
}

// End ends the leadership because of cause, and returns the error of requests that
// were not executed. If the database lost data the node stops serving.
func (l *leader) End(cause error) error {
	if errors.Is(cause, sqlstore.ErrRowMissing) {
		l.b.seen.Missing()
	}
	err := fmt.Errorf("%w: %w", mvcc.ErrNotLeader, cause)
	if errors.Is(cause, fence.ErrDataLost) || l.b.cfg.Leadership == nil {
		// This node's state may be wrong, or cannot follow another leader.
		err = l.b.stopServing(cause)
	}
	if l.reason.CompareAndSwap(nil, &err) {
		l.b.log.Warn("the leadership ended", "error", cause)
		l.leave()
		l.die()
		close(l.ended)
	}
	return *l.reason.Load()
}

// leave makes the node no longer lead. It has known the newest commit until now.
func (l *leader) leave() {
	l.b.noteFed()
	l.b.leading.CompareAndSwap(l, nil)
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

// awaitRevision waits until this leader shows revision rev, or stops leading.
func (l *leader) awaitRevision(ctx context.Context, rev int64) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.alive, cancel)()
	if err := l.b.tso.Wait(waiting, rev); err != nil {
		return cmp.Or(l.Lost(), err)
	}
	return nil
}

// Ended implements write.Leader.
func (l *leader) Ended() <-chan struct{} { return l.ended }

// AuthRows implements write.Leader.
func (l *leader) AuthRows() *auth.Rows { return l.b.AuthRows() }

// Seen implements write.Leader.
func (l *leader) Seen(token coder.FenceToken) { l.b.seen.Note(token) }

// Refused implements write.Leader.
func (l *leader) Refused(err error) { l.b.space.Refused(err) }

// Publish implements write.Leader.
func (l *leader) Publish(c write.Committed) error {
	l.b.space.Grow(int64(c.Bytes))
	l.b.users.Raise(c.Auth) // before the commit can be read
	return l.b.show(c.Events, c.Revision, c.Then...)
}

// Leading reports whether the node leads.
func (b *Replica) Leading() bool { return b.leading.Load() != nil }
