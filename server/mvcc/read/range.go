package read

import (
	"cmp"
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/txn"
)

// Range answers q at the revision that it asks for. A linearizable one sees every write
// acknowledged before the call. Errors: mvcc.ErrCompacted, mvcc.ErrFutureRevision, those of
// Node, the database's.
func (r *Reader) Range(ctx context.Context, as auth.Permit, q *mvcc.RangeRequest,
	linearizable bool) (*mvcc.RangeResult, error) {
	var res *mvcc.RangeResult
	err := r.Stable(ctx, as, linearizable, func(ctx context.Context, now *Reading) (err error) {
		res, err = now.RangeAt(ctx, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// RangeAt answers q at the revision that it asks for when r is at the newest one.
func (r *Reading) RangeAt(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	read, err := r.Past(q.Revision)
	if err != nil {
		return nil, err
	}
	res, err := read.Range(ctx, q)
	if len(q.End) != 0 {
		r.reader.node.CountRange(read.table)
	}
	if read != r {
		err = cmp.Or(read.Check(ctx), err)
	}
	if err != nil {
		return nil, err
	}
	res.Revision = r.rev
	return res, nil
}

// Range answers q at the reading's revision, whichever q asks for.
func (r *Reading) Range(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	res, err := txn.Range(ctx, txnState{r}, q)
	if err != nil {
		return nil, err
	}
	if n := len(res.Records); res.More && !q.Filtered() && q.InKeyOrder() {
		after := coder.Span{Start: coder.KeyAfter(res.Records[n-1].Key), End: q.Span().End}
		r.counted = append(r.counted, countedSpan{after, res.Count - int64(n)})
	}
	return res, nil
}
