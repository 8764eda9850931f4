package write

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

// A command that needs a range, or the keys of a lease, reads them before it is queued, in the
// goroutine of its caller and at the visible revision. Commits record what they change of them
// until the command is evaluated. So the evaluation needs no statement, regardless of the
// number of keys, and other writes wait for the commit only.

const (
	// MaxTxnKeys is the most keys that the ranges of one writing transaction may hold:
	// its range deletes, range compares and ranges without a small limit, in all
	// branches together. A transaction with more is refused. A commit of so many
	// deletes takes some seconds and must fit Config.CommitTimeout.
	MaxTxnKeys = 120_000
	// MaxTxnBytes bounds the values that those ranges read.
	MaxTxnBytes = 64 << 20
)

// PrefetchTxn returns the command of t with the ranges that it needs. The caller ends it with Release, if it returns no
// error. Errors: mvcc.ErrTooLarge, read.ErrOvertaken, the leader's, ctx's, the database's.
func (p *Pipeline) PrefetchTxn(ctx context.Context, t *mvcc.Txn) (*TxnCommand, error) {
	c := NewTxnCommand(t)
	pre := &Prefetch{byRange: make(map[rangeKey]*prefetchedRange), entries: make(map[string]indexEntry)}
	if pre.plan(t); len(pre.ranges) == 0 && len(pre.past) == 0 && len(pre.pages) == 0 && len(pre.values) == 0 {
		return c, nil
	}
	c.prefetch = pre
	pre.joinSpans()
	p.prefetches.Store(pre, nil)
	err := p.reserveBytes(ctx, pre)
	if err == nil {
		err = p.readRanges(ctx, pre)
	}
	for tries := 1; tries < read.MaxRaces && errors.Is(err, mvcc.ErrCompacted); tries++ {
		err = p.readRanges(ctx, pre)
	}
	if err == nil {
		err = p.readPast(ctx, pre)
	}
	if err == nil {
		p.releaseBytes(pre)
	}
	for _, q := range pre.pages {
		if err == nil {
			// This fills the view with the page and the count.
			_, err = p.cfg.Reader.InTurns(p.cfg.Revisions.Visible()).Range(ctx, q)
		}
	}
	if err == nil {
		err = p.readValues(ctx, pre)
	}
	if errors.Is(err, mvcc.ErrCompacted) { // another leader may have compacted
		err = cmp.Or(p.cfg.Leader.VerifyLeader(ctx), read.ErrOvertaken)
	}
	if err != nil {
		p.Release(pre)
		return nil, err
	}
	return c, nil
}

// reserveBytes waits until all values that the ranges of pre may have fit in memory.
func (p *Pipeline) reserveBytes(ctx context.Context, pre *Prefetch) error {
	if len(pre.past) == 0 && !slices.ContainsFunc(pre.ranges, func(r *prefetchedRange) bool { return r.values }) {
		return nil
	}
	err := p.txnBytes.Acquire(ctx, MaxTxnBytes)
	if err == nil {
		pre.reserved = MaxTxnBytes
	}
	return err
}

// releaseBytes releases what was reserved, but for the values that were read.
func (p *Pipeline) releaseBytes(pre *Prefetch) {
	p.txnBytes.Release(int64(pre.reserved - pre.bytes))
	pre.reserved = pre.bytes
}

// PrefetchLease reads at most limit keys of lease id, those after the key after. The caller
// must end the prefetch with Release. Errors: ctx's, the database's.
func (p *Pipeline) PrefetchLease(ctx context.Context, id int64, after []byte, limit int) (*Prefetch, error) {
	lease := &prefetchedLease{id: id}
	pre := &Prefetch{lease: lease, entries: make(map[string]indexEntry)}
	p.prefetches.Store(pre, nil)
	lo, hi := coder.AttachmentBounds(id)
	if after != nil {
		lo = append(coder.EncodeAttachmentKey(id, after), 0)
	}
	var err error
	for key, failed := range Attached(ctx, p.cfg.Store, lo, hi, limit+1) {
		if err = failed; len(lease.keys) < limit {
			lease.keys = append(lease.keys, key)
		} else {
			lease.more = true
		}
	}
	if err == nil {
		err = p.addBases(ctx, pre, lease.keys)
	}
	if err != nil {
		p.Release(pre)
		return nil, err
	}
	pre.keys = len(lease.keys)
	return pre, nil
}

// readRanges reads the ranges of pre at the visible revision.
func (p *Pipeline) readRanges(ctx context.Context, pre *Prefetch) error {
	reading := p.cfg.Reader.InTurns(p.cfg.Revisions.Visible())
	pre.keys, pre.bytes, pre.bases = 0, 0, nil
	for _, r := range pre.ranges {
		reading.OnIndex(nil)
		if r.deletes {
			reading.OnIndex(pre.addBase)
		}
		r.records = nil
		var failed error
		err := reading.Scan(ctx, r.Span(), r.values, 0, func(records []*coder.Record) bool {
			r.records = append(r.records, records...)
			if failed = p.addRead(pre, records, r.values); failed == nil && pre.keys > exclusiveBatchKeys && pre.weight == 0 {
				failed = p.acquireWeight(ctx, pre)
			}
			return failed == nil
		})
		if err = errors.Join(failed, err); err != nil {
			return err
		}
	}
	if err := reading.Check(ctx); err != nil {
		return err
	}
	return p.addMissing(ctx, pre)
}

// addRead counts records that were read for pre.
func (p *Pipeline) addRead(pre *Prefetch, records []*coder.Record, values bool) error {
	pre.keys += len(records)
	for i := 0; i < len(records) && values; i++ {
		pre.bytes += len(records[i].Value)
	}
	if pre.bytes > MaxTxnBytes {
		return fmt.Errorf("%w: its ranges read more than %d bytes", mvcc.ErrTooLarge, MaxTxnBytes)
	}
	if pre.keys > p.cfg.Limits.TxnKeys {
		return tooManyKeys(p.cfg.Limits.TxnKeys)
	}
	return nil
}

// addMissing adds the index entries of those records to delete that were in memory. It reads many of a range as a range.
// Prefetch.base recognizes entries that are newer than the records.
func (p *Pipeline) addMissing(ctx context.Context, pre *Prefetch) error {
	pre.sortBases()
	var few [][]byte
	var many []coder.Span
	for _, r := range pre.ranges {
		var missing [][]byte
		for i := 0; i < len(r.records) && r.deletes; i++ {
			if key := r.records[i].Key; pre.findBase(key) == nil {
				missing = append(missing, key)
			}
		}
		if len(missing) <= entriesAtOnce {
			few = append(few, missing...)
		} else {
			many = append(many, r.Span())
		}
	}
	err := p.addBases(ctx, pre, few)
	for i := 0; i < len(many) && err == nil; i++ {
		err = p.cfg.Reader.InTurns(p.cfg.Revisions.Visible()).EachIndex(ctx, many[i], pre.addBase)
	}
	pre.sortBases()
	return err
}

// addBases adds the index entries of keys.
func (p *Pipeline) addBases(ctx context.Context, pre *Prefetch, keys [][]byte) error {
	entries, err := p.entriesOf(ctx, keys)
	for i, e := range entries {
		pre.bases = append(pre.bases, keyEntry{keys[i], e})
	}
	return err
}

func tooManyKeys(most int) error {
	return fmt.Errorf("%w: its ranges hold more than %d keys", mvcc.ErrTooLarge, most)
}

// acquireWeight waits until all ranges of pre fit in memory, those at old revisions too. It counts them first, and
// returns mvcc.ErrTooLarge if they have too many keys.
func (p *Pipeline) acquireWeight(ctx context.Context, pre *Prefetch) error {
	most, rev := int64(p.cfg.Limits.TxnKeys), p.cfg.Revisions.Visible()
	total := int64(0)
	for _, r := range pre.ranges {
		n, err := p.countUpTo(ctx, r.Span(), rev, most-total)
		if err != nil {
			return err
		}
		if total += n; total > most {
			return tooManyKeys(p.cfg.Limits.TxnKeys)
		}
	}
	for q := range pre.past {
		n := max(q.Limit, 1)
		if !q.Paged() {
			var err error
			if n, err = p.countUpTo(ctx, q.Span(), q.Revision, most-total); err != nil {
				return err
			}
		}
		total = min(total+n, most) // keys that did not exist then count too: addRead decides
	}
	total = max(total, 1)
	if err := p.txnWeight.Acquire(ctx, total); err != nil {
		return err
	}
	pre.weight = total
	return nil
}

// countUpTo counts the keys that span had at rev or has now, and stops soon after most: the count of a very large
// range takes seconds. It takes two statements unless there are many tombstones. A key that was changed since rev
// counts, because the range is read at rev.
func (p *Pipeline) countUpTo(ctx context.Context, span coder.Span, rev, most int64) (n int64, err error) {
	lo, hi := span.IndexBounds()
	for n <= most {
		row, err := p.cfg.Store.SeekNth(ctx, lo, hi, int(most)+1)
		if err != nil {
			return 0, err
		}
		next := hi
		if row != nil { // after most+1 rows, some of which may be tombstones
			next = row
		}
		live, newer, err := p.cfg.Store.Count(ctx, lo, next, rev)
		if err != nil {
			return 0, err
		}
		if n += live + newer; row == nil {
			break
		}
		lo = next
	}
	return n, nil
}

// readValues reads the records of single keys, those of all callers together. The sequencer would read one after the other,
// and all writes would wait. A revision's content never changes, so that the reading need not be checked.
func (p *Pipeline) readValues(ctx context.Context, pre *Prefetch) error {
	for key := range pre.values {
		rec, err := p.cfg.Reader.InTurns(p.cfg.Revisions.Visible()).Get(ctx, []byte(key), true)
		if err != nil {
			return err
		}
		if rec == nil {
			continue
		}
		size := len(rec.Value)
		if pre.bytes+size > MaxTxnBytes || !p.txnBytes.TryAcquire(int64(size)) {
			return nil // the evaluation reads the others
		}
		pre.bytes, pre.reserved = pre.bytes+size, pre.reserved+size
		pre.values[key] = rec
	}
	return nil
}

// readPast answers the ranges of pre at old revisions, which do not change. The sequencer decides
// again about those that are refused here.
func (p *Pipeline) readPast(ctx context.Context, pre *Prefetch) error {
	for q := range pre.past {
		if pre.weight == 0 && !q.Paged() { // all its keys are read at once
			n, err := p.countUpTo(ctx, q.Span(), q.Revision, exclusiveBatchKeys)
			if err == nil && n > exclusiveBatchKeys {
				err = p.acquireWeight(ctx, pre)
			}
			if err != nil {
				return err
			}
		}
		res, err := p.cfg.Reader.InTurns(p.cfg.Revisions.Visible()).RangeAt(ctx, q)
		switch {
		case err == nil:
			if err = p.addRead(pre, res.Records, true); err != nil {
				return err
			}
			pre.past[q] = res
		case errors.Is(err, mvcc.ErrCompacted), errors.Is(err, mvcc.ErrFutureRevision):
		default:
			return err
		}
	}
	return nil
}
