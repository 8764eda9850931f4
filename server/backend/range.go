package backend

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
)

// maxReadRaces bounds how often a read of the current revision starts again
// because compaction overtook it.
const maxReadRaces = 8

// Range answers r. A linearizable one sees every write acknowledged before the
// call. Errors: ErrCompacted, ErrFutureRevision, ErrNotServing, the database's.
func (b *Backend) Range(ctx context.Context, r *RangeRequest, linearizable bool) (*RangeResult, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	return b.readStable(ctx, linearizable, func(frontier int64) (*RangeResult, error) {
		return b.rangeAt(ctx, r, frontier)
	})
}

// readStable runs read at the frontier, and again at a newer one when compaction
// passed the frontier meanwhile.
func (b *Backend) readStable(ctx context.Context, linearizable bool, read func(frontier int64) (*RangeResult, error)) (*RangeResult, error) {
	for range maxReadRaces {
		frontier, err := b.readFrontier(ctx, linearizable)
		if err != nil {
			return nil, err
		}
		res, err := read(frontier)
		if err == nil || !errors.Is(err, errReadRaced) {
			return res, b.publicError(ctx, err)
		}
		// A follower may hear of a compaction before the revision it is at.
		if err := b.tso.Wait(ctx, b.CompactRevision()); err != nil {
			return nil, b.publicError(ctx, err)
		}
	}
	return nil, ErrCompacted
}

// errReadRaced: the revision was readable when the read began and is compacted now.
var errReadRaced = errors.New("backend: compaction overtook the read")

// rangeAt answers r when the store's newest revision is cur.
func (b *Backend) rangeAt(ctx context.Context, r *RangeRequest, cur int64) (*RangeResult, error) {
	rev, err := b.readRevision(r.Revision, cur)
	if err != nil {
		return nil, err
	}
	read := b.reader.at(rev)
	res, err := read.rangeOf(ctx, r)
	if len(r.End) != 0 {
		b.metrics.countRange(read.table)
	}
	if read.table {
		mark, merr := b.mark(ctx)
		if merr != nil {
			return nil, merr
		}
		if rev < mark { // rows it needed may have been gone already
			if r.Revision > 0 {
				return nil, ErrCompacted
			}
			return nil, errReadRaced
		}
	}
	if err != nil {
		return nil, err
	}
	read.keepCounts()
	res.Revision = cur
	return res, nil
}

// stillReadable returns ErrCompacted if rows that the reading needed may have been
// gone before the call.
func (r *reading) stillReadable(ctx context.Context) error {
	if !r.table {
		return nil
	}
	mark, err := r.mark(ctx)
	if err == nil && r.rev < mark {
		err = ErrCompacted
	}
	return err
}

// boundFrontier is readFrontier within the request timeout.
func (b *Backend) boundFrontier(ctx context.Context, linearizable bool) (int64, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	return b.readFrontier(ctx, linearizable)
}

// readRevision checks the revision a request asks for against the store's.
func (b *Backend) readRevision(asked, cur int64) (int64, error) {
	switch {
	case asked <= 0:
		return cur, nil
	case asked > cur:
		return 0, ErrFutureRevision
	case asked < b.compacted.Load():
		return 0, ErrCompacted
	default:
		return asked, nil
	}
}

// rangeOf answers q at the reading's revision.
func (r *reading) rangeOf(ctx context.Context, q *RangeRequest) (*RangeResult, error) {
	switch {
	case len(q.End) == 0:
		return r.rangeOne(ctx, q)
	case bytes.Compare(q.Key, q.End) >= 0 && !coder.IsFromKey(q.End):
		return &RangeResult{}, nil
	case q.CountOnly:
		n, err := r.count(ctx, q.KeyRange)
		return &RangeResult{Count: n}, err
	case q.Limit > 0 && !q.filtered() && q.inKeyOrder():
		return r.rangePage(ctx, q)
	default:
		return r.rangeAll(ctx, q)
	}
}

func (r *reading) rangeOne(ctx context.Context, q *RangeRequest) (*RangeResult, error) {
	rec, err := r.get(ctx, q.Key, !q.KeysOnly && !q.CountOnly)
	if err != nil || rec == nil {
		return &RangeResult{}, err
	}
	res := &RangeResult{Count: 1}
	if !q.CountOnly {
		q.finish(res, []*coder.Record{rec})
	}
	return res, nil
}

// rangePage reads no more rows than the limit asks for.
func (r *reading) rangePage(ctx context.Context, q *RangeRequest) (*RangeResult, error) {
	res := &RangeResult{}
	err := r.scan(ctx, q.KeyRange, !q.KeysOnly, q.Limit+1, func(records []*coder.Record) bool {
		left := q.Limit - int64(len(res.Records))
		if res.More = int64(len(records)) > left; res.More {
			records = records[:left]
		}
		res.Records = append(res.Records, records...)
		return !res.More
	})
	if err != nil {
		return nil, err
	}
	q.strip(res.Records)
	n := int64(len(res.Records))
	res.Count = n
	if res.More {
		if res.Count, err = r.count(ctx, q.KeyRange); err != nil {
			return nil, err
		}
		last := res.Records[n-1].Key
		after := KeyRange{Key: behind(last), End: q.End}
		r.counted = append(r.counted, countedRange{after, res.Count - n})
	}
	return res, nil
}

func (r *reading) rangeAll(ctx context.Context, q *RangeRequest) (*RangeResult, error) {
	var all []*coder.Record
	needValue := !q.KeysOnly || q.SortBy == SortByValue
	err := r.scan(ctx, q.KeyRange, needValue, 0, func(records []*coder.Record) bool {
		all = append(all, records...)
		return true
	})
	if err != nil {
		return nil, err
	}
	res := &RangeResult{Count: int64(len(all))}
	q.finish(res, all)
	return res, nil
}

// finish filters, sorts, limits and strips the records of a whole range, in
// etcd's order, into res.
func (q *RangeRequest) finish(res *RangeResult, records []*coder.Record) {
	if q.filtered() {
		records = slices.DeleteFunc(records, func(r *coder.Record) bool { return !q.matches(r) })
	} else if q.SortOrder == SortNone && q.Limit > 0 && int64(len(records)) > q.Limit {
		// Without an order etcd takes the limit for one on keys, whatever the
		// target: it sorts one key more than that, and leaves the last one out.
		records = records[:q.Limit+1]
	}
	q.sort(records)
	if q.Limit > 0 && int64(len(records)) > q.Limit {
		records = records[:q.Limit]
		res.More = true
	}
	q.strip(records)
	res.Records = records
}

// strip takes away what keys_only leaves out: the value, and the lease too
// unless the value was needed for sorting; that is what etcd answers.
func (q *RangeRequest) strip(records []*coder.Record) {
	if !q.KeysOnly {
		return
	}
	stripped := make([]coder.Record, len(records))
	for i, r := range records {
		stripped[i] = *r
		stripped[i].Value = nil
		if q.SortBy != SortByValue {
			stripped[i].Lease = 0
		}
		records[i] = &stripped[i]
	}
}

func (q *RangeRequest) filtered() bool {
	return q.MinModRevision != 0 || q.MaxModRevision != 0 || q.MinCreateRevision != 0 || q.MaxCreateRevision != 0
}

func (q *RangeRequest) matches(r *coder.Record) bool {
	return (q.MinModRevision == 0 || r.ModRevision >= q.MinModRevision) &&
		(q.MaxModRevision == 0 || r.ModRevision <= q.MaxModRevision) &&
		(q.MinCreateRevision == 0 || r.CreateRevision >= q.MinCreateRevision) &&
		(q.MaxCreateRevision == 0 || r.CreateRevision <= q.MaxCreateRevision)
}

func (q *RangeRequest) inKeyOrder() bool { return q.SortBy == SortByKey && q.SortOrder != SortDescend }

// sort orders records, which come in key order, as etcd does: a target other
// than the key with no order sorts ascending. Like etcd's, the sort is pdqsort
// over records in key order, so equal ones come out in the same order too.
func (q *RangeRequest) sort(records []*coder.Record) {
	if q.inKeyOrder() {
		return
	}
	compare := comparators[q.SortBy]
	if q.SortOrder == SortDescend {
		ascending := compare
		compare = func(a, b *coder.Record) int { return ascending(b, a) }
	}
	slices.SortFunc(records, compare)
}

var comparators = map[SortTarget]func(a, b *coder.Record) int{
	SortByKey:     func(a, b *coder.Record) int { return bytes.Compare(a.Key, b.Key) },
	SortByVersion: func(a, b *coder.Record) int { return cmp.Compare(a.Version, b.Version) },
	SortByCreate:  func(a, b *coder.Record) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) },
	SortByMod:     func(a, b *coder.Record) int { return cmp.Compare(a.ModRevision, b.ModRevision) },
	SortByValue:   func(a, b *coder.Record) int { return bytes.Compare(a.Value, b.Value) },
}
