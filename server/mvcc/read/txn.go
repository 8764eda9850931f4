package read

import (
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/txn"
)

// Txn evaluates t, which does not write, at the visible revision. A linearizable one sees every
// write acknowledged before the call. Errors: those of Range.
func (r *Reader) Txn(ctx context.Context, as auth.Permit, t *mvcc.Txn, linearizable bool) (*mvcc.TxnResult, error) {
	var res *mvcc.TxnResult
	err := r.Stable(ctx, as, linearizable, func(ctx context.Context, now *Reading) (err error) {
		res, err = now.Txn(ctx, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// Txn evaluates t, which does not write, at the reading's revision.
func (r *Reading) Txn(ctx context.Context, t *mvcc.Txn) (*mvcc.TxnResult, error) {
	res, _, err := txn.Evaluate(ctx, txnState{r}, t)
	return res, err
}

// txnState is the txn.State of a transaction that does not write.
type txnState struct{ *Reading }

func (s txnState) List(ctx context.Context, kr mvcc.KeyRange, values bool, limit int64) ([]*coder.Record, error) {
	return s.Reading.List(ctx, kr.Span(), values, limit)
}

func (s txnState) Count(ctx context.Context, kr mvcc.KeyRange) (int64, error) {
	return s.Reading.Count(ctx, kr.Span())
}

func (txnState) LeaseOpen(int64) bool              { return false } // only puts ask
func (txnState) PolicyLease([]byte) (int64, error) { return 0, nil }
