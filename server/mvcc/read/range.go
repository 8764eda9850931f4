package read

import (
	"bytes"
	"cmp"
	"context"
	"math"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
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

// RangeAt answers q at the revision that it asks for when now is the newest one.
func (now *Reading) RangeAt(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	read, err := now.Past(q.Revision)
	if err != nil {
		return nil, err
	}
	res, err := read.Range(ctx, q)
	if len(q.End) != 0 {
		now.reader.node.CountRange(read.table)
	}
	if read != now {
		err = cmp.Or(read.Check(ctx), err)
	}
	if err != nil {
		return nil, err
	}
	res.Revision = now.rev
	return res, nil
}

// Range answers q at the reading's revision, whichever q asks for.
func (r *Reading) Range(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	switch {
	case len(q.End) == 0:
		return r.rangeOne(ctx, q)
	case bytes.Compare(q.Key, q.End) >= 0 && !coder.IsFromKey(q.End):
		return &mvcc.RangeResult{}, nil
	case q.CountOnly:
		n, err := r.Count(ctx, q.Span())
		return &mvcc.RangeResult{Count: n}, err
	case q.Limit > 0 && q.Limit < math.MaxInt64 && !q.Filtered() && q.InKeyOrder():
		return r.rangePage(ctx, q)
	default:
		return r.rangeAll(ctx, q)
	}
}

func (r *Reading) rangeOne(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	rec, err := r.Get(ctx, q.Key, !q.KeysOnly && !q.CountOnly)
	if err != nil || rec == nil {
		return &mvcc.RangeResult{}, err
	}
	res := &mvcc.RangeResult{Count: 1}
	if !q.CountOnly {
		q.Finish(res, []*coder.Record{rec})
	}
	return res, nil
}

// rangePage reads no more rows than the limit asks for.
func (r *Reading) rangePage(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	records, err := r.List(ctx, q.Span(), !q.KeysOnly, q.Limit+1)
	if err != nil {
		return nil, err
	}
	res := &mvcc.RangeResult{Records: records[:min(int64(len(records)), q.Limit)]}
	res.More = len(records) > len(res.Records)
	q.Strip(res.Records)
	n := int64(len(res.Records))
	res.Count = n
	if res.More {
		if res.Count, err = r.Count(ctx, q.Span()); err != nil {
			return nil, err
		}
		last := res.Records[n-1].Key
		after := coder.Span{Start: coder.KeyAfter(last), End: q.Span().End}
		r.counted = append(r.counted, countedSpan{after, res.Count - n})
	}
	return res, nil
}

func (r *Reading) rangeAll(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	all, err := r.List(ctx, q.Span(), q.NeedValues(), 0)
	if err != nil {
		return nil, err
	}
	res := &mvcc.RangeResult{Count: int64(len(all))}
	q.Finish(res, all)
	return res, nil
}
