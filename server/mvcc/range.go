package mvcc

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
)

const (
	// PageRows bounds the index rows that the first statement of a range reads.
	PageRows = 1000
	// LongestPage bounds those of a later one. Each reads twice as many as the one before, so
	// that a range of many keys takes few round trips, and a short one reads nothing in vain.
	LongestPage = 8000
)

// Finish filters, sorts, limits and strips the records of a whole range, in
// etcd's order, into res.
func (q *RangeRequest) Finish(res *RangeResult, records []*coder.Record) {
	if q.Filtered() {
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
	if cap(records) > 2*len(records) {
		records = slices.Clone(records) // the others are not kept
	}
	q.Strip(records)
	res.Records = records
}

// Strip removes what keys_only leaves out: the value, and the lease too
// unless the value was needed for sorting; that is what etcd answers.
func (q *RangeRequest) Strip(records []*coder.Record) {
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

// Filtered reports whether q has bounds on revisions.
func (q *RangeRequest) Filtered() bool {
	return q.MinModRevision != 0 || q.MaxModRevision != 0 || q.MinCreateRevision != 0 || q.MaxCreateRevision != 0
}

func (q *RangeRequest) matches(r *coder.Record) bool {
	return (q.MinModRevision == 0 || r.ModRevision >= q.MinModRevision) &&
		(q.MaxModRevision == 0 || r.ModRevision <= q.MaxModRevision) &&
		(q.MinCreateRevision == 0 || r.CreateRevision >= q.MinCreateRevision) &&
		(q.MaxCreateRevision == 0 || r.CreateRevision <= q.MaxCreateRevision)
}

// InKeyOrder reports whether the answer is in the order of the keys.
func (q *RangeRequest) InKeyOrder() bool { return q.SortBy == SortByKey && q.SortOrder != SortDescend }

// sort orders records, which come in key order, as etcd does: a target other
// than the key with no order sorts ascending. Like etcd's, the sort is pdqsort
// over records in key order, so equal ones come out in the same order too.
func (q *RangeRequest) sort(records []*coder.Record) {
	if q.InKeyOrder() {
		return
	}
	compare := q.SortBy.Compare
	if q.SortOrder == SortDescend {
		ascending := compare
		compare = func(a, b *coder.Record) int { return ascending(b, a) }
	}
	slices.SortFunc(records, compare)
}

// Compare orders records by t alone, ascending.
func (t SortTarget) Compare(a, b *coder.Record) int {
	switch t {
	case SortByVersion:
		return cmp.Compare(a.Version, b.Version)
	case SortByCreate:
		return cmp.Compare(a.CreateRevision, b.CreateRevision)
	case SortByMod:
		return cmp.Compare(a.ModRevision, b.ModRevision)
	case SortByValue:
		return bytes.Compare(a.Value, b.Value)
	default:
		return bytes.Compare(a.Key, b.Key)
	}
}

// Paged reports whether q is cheap on the sequencer: it reads a page at most, or
// only counts.
func (q *RangeRequest) Paged() bool {
	return q.CountOnly || len(q.End) == 0 || q.Limit > 0 && q.Limit <= PageRows && !q.Filtered() && q.InKeyOrder()
}

// NeedValues reports whether the values of the records must be read.
func (q *RangeRequest) NeedValues() bool {
	return !q.CountOnly && (!q.KeysOnly || q.SortBy == SortByValue)
}
