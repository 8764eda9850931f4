package write

import (
	"bytes"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/txn"
)

const (
	// exclusiveBatchKeys is the number of keys above which a command begins a new batch, so that
	// earlier commands need not wait for its commit.
	exclusiveBatchKeys = mvcc.PageRows
	// SmallLease is the same number for the revocation of a lease.
	SmallLease = 100
)

// Prefetch is what was read for one command before it was queued. Once the command is submitted,
// only the sequencer may use it.
type Prefetch struct {
	ranges  []*prefetchedRange
	byRange map[rangeKey]*prefetchedRange            // the same
	spans   []coder.Span                             // the keys of ranges, in order, without overlaps
	past    map[*mvcc.RangeRequest]*mvcc.RangeResult // ranges at old revisions
	pages   []*mvcc.RangeRequest                     // ranges with a small limit, which the evaluation reads again
	values  map[string]*coder.Record                 // of single keys; used if the index row is still the same
	lease   *prefetchedLease                         // nil: it is one of ranges

	bases    []keyEntry            // of the keys of lease, or of the records of ranges to delete; in key order
	next     int                   // the base after the one found last: evaluations go through ranges in key order
	changed  txn.Overlay           // what commits have changed of the keys since they were read
	entries  map[string]indexEntry // of the keys of changed
	keys     int                   // read
	bytes    int                   // of their values
	reserved int                   // of Pipeline.txnBytes
	attempt  int                   // how often the evaluation has asked for it before
	weight   int64                 // of Pipeline.txnWeight
}

// keyEntry is the index entry of a key.
type keyEntry struct {
	key []byte
	indexEntry
}

func (e keyEntry) compare(key []byte) int { return bytes.Compare(e.key, key) }

type rangeKey struct{ key, end string }

func keyOf(kr mvcc.KeyRange) rangeKey { return rangeKey{string(kr.Key), string(kr.End)} }

// prefetchedRange has the records of a range at the revision at which they were read.
type prefetchedRange struct {
	mvcc.KeyRange
	values  bool
	deletes bool
	records []*coder.Record
}

// prefetchedLease has keys of a lease.
type prefetchedLease struct {
	id int64
	// keys are the first keys of the lease, in key order. With more, it has others.
	keys [][]byte
	more bool
}

// plan adds the ranges that t reads in all branches.
func (pre *Prefetch) plan(t *mvcc.Txn) {
	for i := range t.Compares {
		c := &t.Compares[i]
		pre.add(c.KeyRange, c.Target == mvcc.CompareValue, false)
		pre.addValue(c.KeyRange, c.Target == mvcc.CompareValue)
	}
	for branch, ops := range [][]mvcc.Op{t.Then, t.Else} {
		for _, op := range ops {
			switch {
			case op.Delete != nil:
				pre.add(op.Delete.KeyRange, op.Delete.PrevKV, true)
				pre.addValue(op.Delete.KeyRange, op.Delete.PrevKV)
			case op.Put != nil:
				pre.addValue(mvcc.KeyRange{Key: op.Put.Key}, op.Put.PrevKV || op.Put.IgnoreValue)
			case op.Range != nil && op.Range.Revision > 0:
				if pre.past == nil {
					pre.past = make(map[*mvcc.RangeRequest]*mvcc.RangeResult)
				}
				pre.past[op.Range] = nil
			case op.Range != nil && len(op.Range.End) == 0:
				// The key of Else is what clients get that were too late.
				pre.addValue(op.Range.KeyRange, branch == 0 && op.Range.NeedValues())
			case op.Range != nil && op.Range.Paged():
				pre.pages = append(pre.pages, op.Range)
			case op.Range != nil:
				pre.add(op.Range.KeyRange, op.Range.NeedValues(), false)
			case op.Txn != nil:
				pre.plan(op.Txn)
			}
		}
	}
}

func (pre *Prefetch) add(kr mvcc.KeyRange, values, deletes bool) {
	if len(kr.End) == 0 {
		return
	}
	r := pre.byRange[keyOf(kr)]
	if r == nil {
		r = &prefetchedRange{KeyRange: kr}
		pre.ranges = append(pre.ranges, r)
		pre.byRange[keyOf(kr)] = r
	}
	r.values, r.deletes = r.values || values, r.deletes || deletes
}

// addValue adds the value of a single key, if it is needed.
func (pre *Prefetch) addValue(kr mvcc.KeyRange, needed bool) {
	if len(kr.End) > 0 || !needed {
		return
	}
	if pre.values == nil {
		pre.values = make(map[string]*coder.Record)
	}
	pre.values[string(kr.Key)] = nil
}

// value returns the current record of key, whose index entry is e; nil if it was not read.
func (pre *Prefetch) value(key []byte, e indexEntry) *coder.Record {
	if pre == nil {
		return nil
	}
	if rec := pre.values[string(key)]; rec != nil && e.of(rec) {
		return rec
	}
	return nil
}

// joinSpans sets spans.
func (pre *Prefetch) joinSpans() {
	for _, r := range pre.ranges {
		if span := r.Span(); !span.Empty() {
			pre.spans = append(pre.spans, span)
		}
	}
	slices.SortFunc(pre.spans, func(x, y coder.Span) int { return bytes.Compare(x.Start, y.Start) })
	joined := pre.spans[:0]
	for _, span := range pre.spans {
		if last := len(joined) - 1; last < 0 || coder.EndBefore(joined[last].End, span.Start) {
			joined = append(joined, span)
		} else if coder.EndBefore(joined[last].End, span.End) {
			joined[last].End = span.End
		}
	}
	pre.spans = joined
}

// large reports whether the command begins a new batch.
func (pre *Prefetch) large() bool {
	return pre != nil && (pre.keys > exclusiveBatchKeys || pre.lease != nil && pre.keys > SmallLease)
}

// rangeOf returns what was read of kr, nil if it was not read.
func (pre *Prefetch) rangeOf(kr mvcc.KeyRange, values bool) *prefetchedRange {
	if pre == nil {
		return nil
	}
	if r := pre.byRange[keyOf(kr)]; r != nil && (r.values || !values) {
		return r
	}
	return nil
}

// base returns the index entry of rec, a current record; false if it was not read.
func (pre *Prefetch) base(rec *coder.Record) (indexEntry, bool) {
	if pre == nil {
		return indexEntry{}, false
	}
	if len(pre.entries) > 0 {
		if e, changed := pre.entries[string(rec.Key)]; changed {
			return e, e.of(rec)
		}
	}
	if found := pre.findBase(rec.Key); found != nil {
		return found.indexEntry, found.of(rec)
	}
	return indexEntry{}, false
}

// findBase returns the element of bases, which must be sorted, of key, nil if there is none.
func (pre *Prefetch) findBase(key []byte) *keyEntry {
	i := pre.next
	if i >= len(pre.bases) || !bytes.Equal(pre.bases[i].key, key) {
		var found bool
		if i, found = slices.BinarySearchFunc(pre.bases, key, keyEntry.compare); !found {
			return nil
		}
	}
	pre.next = i + 1
	return &pre.bases[i]
}

// addBase adds the index row of a key to bases. It encodes the row, so that the sequencer need not.
func (pre *Prefetch) addBase(key []byte, x coder.Index) {
	row := &encodedRow{coder.EncodeIndexKey(key), coder.EncodeIndex(x)}
	pre.bases = append(pre.bases, keyEntry{key, indexEntry{Index: x, exists: true, encoded: row}})
}

func (pre *Prefetch) sortBases() {
	slices.SortFunc(pre.bases, func(x, y keyEntry) int { return x.compare(y.key) })
}

// list returns the records of r, one of its ranges, in the newest committed state, in key order: at most limit, 0 for
// all. The caller must not change the slice.
func (pre *Prefetch) list(r *prefetchedRange, limit int64) []*coder.Record {
	records, _ := pre.changed.List(r.KeyRange, limit, func(limit int64) ([]*coder.Record, error) {
		if limit > 0 {
			return r.records[:min(int64(len(r.records)), limit)], nil
		}
		return r.records, nil
	})
	return records
}

// Len returns how many keys were read.
func (pre *Prefetch) Len() int { return pre.keys }

// More reports whether the lease held more keys than PrefetchLease has read.
func (pre *Prefetch) More() bool { return pre.lease.more }

// Last returns the last key that PrefetchLease has read, nil if there is none.
func (pre *Prefetch) Last() []byte {
	if len(pre.lease.keys) == 0 {
		return nil
	}
	return pre.lease.keys[len(pre.lease.keys)-1]
}

// Cut drops the keys of the lease after the first n.
func (pre *Prefetch) Cut(n int) {
	if n < len(pre.lease.keys) {
		pre.keys, pre.lease.keys, pre.lease.more = n, pre.lease.keys[:n], true
	}
}

// recordChange records a change of the batch b if it concerns what was read. It must be fast: a
// transaction may have thousands of ranges, and many transactions may wait.
func (pre *Prefetch) recordChange(b *batch, c *txn.Change) {
	if !pre.concerns(c) {
		return
	}
	pre.changed.Add(c)
	pre.entries[string(c.Record.Key)] = b.entry(b.changed.Get(c.Record.Key))
}

// concerns reports whether c changes a key of a range, attaches a key to the lease, or changes a key that was
// attached.
func (pre *Prefetch) concerns(c *txn.Change) bool {
	key := c.Record.Key
	if pre.lease != nil {
		if c.Record.Lease == pre.lease.id || c.Prev != nil && c.Prev.Lease == pre.lease.id {
			return true
		}
		return pre.changed.Get(key) != nil
	}
	after, _ := slices.BinarySearchFunc(pre.spans, key, func(span coder.Span, key []byte) int {
		if bytes.Compare(span.Start, key) <= 0 {
			return -1
		}
		return 1
	})
	return after > 0 && pre.spans[after-1].Contains(key)
}

// recordChanges records what a commit changed of what was prefetched. The commit must be visible: a prefetch that is
// added later reads at its revision or a newer one.
func (p *Pipeline) recordChanges(b *batch) {
	for _, pre := range b.done {
		p.prefetches.Delete(pre)
	}
	for pre := range p.prefetches.Range {
		for i := range b.changes {
			pre.(*Prefetch).recordChange(b, &b.changes[i])
		}
	}
}

// Release ends a prefetch; nil is none. Its command must have been answered or abandoned.
func (p *Pipeline) Release(pre *Prefetch) {
	if pre == nil {
		return
	}
	p.prefetches.Delete(pre)
	p.txnWeight.Release(pre.weight)
	p.txnBytes.Release(int64(pre.reserved))
}
