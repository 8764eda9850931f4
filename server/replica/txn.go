package replica

import (
	"context"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
)

// Txn executes t; single puts and deletes are transactions of one Op. A
// transaction without a write, or nested transaction, is a read at one revision.
func (b *Replica) Txn(ctx context.Context, as auth.Permit, t *mvcc.Txn, linearizable bool) (*mvcc.TxnResult, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	if t.Writes() {
		l, err := b.lead()
		if err != nil {
			return nil, err
		}
		if err := b.alarms.CheckWrite(t.Puts()); err != nil {
			return nil, err
		}
		check := b.space.CheckDelete
		if t.Puts() {
			check = func() error { return b.space.Check(t.Cost()) }
		}
		if err := check(); err != nil {
			return nil, err
		}
		return l.pipeline.Txn(ctx, as, t)
	}
	return b.readTxn(ctx, as, t, linearizable)
}

// readTxn evaluates a read-only transaction at the visible revision, without the pipeline.
func (b *Replica) readTxn(ctx context.Context, as auth.Permit, t *mvcc.Txn,
	linearizable bool) (*mvcc.TxnResult, error) {
	var res *mvcc.TxnResult
	err := b.reader.Stable(ctx, as, linearizable, func(now *read.Reading) (err error) {
		res, err = now.Txn(ctx, t)
		return err
	})
	if err != nil {
		return nil, mvcc.PublicError(ctx, err)
	}
	return res, nil
}

// bound returns ctx with the request timeout.
func (b *Replica) bound(ctx context.Context) (bound context.Context, cancel func()) {
	return b.timeout.Bound(ctx)
}

// lead returns the leadership, or why this node does not lead.
func (b *Replica) lead() (*leader, error) {
	if err := b.Stopped(); err != nil {
		return nil, err
	}
	if l := b.leading.Load(); l != nil {
		return l, nil
	}
	return nil, mvcc.ErrNotLeader
}

// submit executes change in the pipeline if this node leads and as permits it. Errors: those
// of change, of as and of write.Pipeline.Submit.
func (b *Replica) submit(ctx context.Context, as auth.Permit, change func(tx *write.Tx) error) error {
	l, err := b.lead()
	if err != nil {
		return err
	}
	return l.submit(ctx, as, change)
}

// submit is Replica.submit for this leadership.
func (l *leader) submit(ctx context.Context, as auth.Permit, change func(tx *write.Tx) error) error {
	ctx, cancel := l.b.bound(ctx)
	defer cancel()
	return l.pipeline.Submit(ctx, as, write.Func(func(_ context.Context, tx *write.Tx) error { return change(tx) }))
}
