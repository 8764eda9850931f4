package replica

import (
	"context"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
)

var (
	_ auth.Node = (*Replica)(nil)
	_ read.Node = (*Replica)(nil)
)

// Txn executes t; single puts and deletes are transactions of one Op. A transaction that does not
// write is a read at one revision, without the pipeline.
func (r *Replica) Txn(ctx context.Context, as auth.Permit, t *mvcc.Txn, linearizable bool) (*mvcc.TxnResult, error) {
	if !t.Writes() {
		return r.Reader.Txn(ctx, as, t, linearizable)
	}
	ctx, cancel := r.timeout.Bound(ctx)
	defer cancel()
	l, err := r.leadership()
	if err != nil {
		return nil, err
	}
	if err := r.Space.Admit(t); err != nil {
		return nil, err
	}
	return l.pipeline.Txn(ctx, as, t)
}

// Compact discards history below rev, see compact.Compactor.Compact.
func (r *Replica) Compact(ctx context.Context, as auth.Permit, rev int64, physical bool) (int64, error) {
	l, err := r.leadership()
	if err != nil {
		return 0, err
	}
	return l.compactor.Compact(ctx, as, rev, physical)
}

// Lessor returns the lessor of this node's leadership. Errors: mvcc.ErrNotLeader, mvcc.ErrNotServing.
func (r *Replica) Lessor() (*lease.Lessor, error) {
	l, err := r.leadership()
	if err != nil {
		return nil, err
	}
	return l.lessor, nil
}

// Submit executes change in the pipeline if this node leads and as permits it. Errors: those
// of change, of as and of write.Pipeline.Submit.
func (r *Replica) Submit(ctx context.Context, as auth.Permit, change func(auth.Tx) error) error {
	l, err := r.leadership()
	if err != nil {
		return err
	}
	ctx, cancel := r.timeout.Bound(ctx)
	defer cancel()
	return l.pipeline.Submit(ctx, as, write.Func(func(_ context.Context, tx *write.Tx) error { return change(tx) }))
}

// VerifyLeader returns nil if as permits the request, and no other node can have acknowledged
// anything before the call. Errors: mvcc.ErrNotLeader, mvcc.ErrNotServing, the database's, those of as.
func (r *Replica) VerifyLeader(ctx context.Context, as auth.Permit) error {
	l, err := r.leadership()
	if err != nil {
		return err
	}
	ctx, cancel := r.timeout.Bound(ctx)
	defer cancel()
	if err := as.Check(ctx, r.Attachments); err != nil {
		return err
	}
	return mvcc.PublicError(ctx, l.VerifyLeader(ctx))
}

// leadership returns the leadership, or why this node does not lead.
func (r *Replica) leadership() (*leader, error) {
	if err := r.Stopped(); err != nil {
		return nil, err
	}
	if l := r.leading.Load(); l != nil {
		return l, nil
	}
	return nil, mvcc.ErrNotLeader
}

// HoldsReadLease reports whether the node leads, and no other node can have acknowledged anything.
func (r *Replica) HoldsReadLease() bool {
	l := r.leading.Load()
	return l != nil && l.lease.Valid()
}

// Leading reports whether the node leads.
func (r *Replica) Leading() bool { return r.leading.Load() != nil }
