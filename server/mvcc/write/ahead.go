package write

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// A command that needs a range, or the keys of a lease, reads them before it is queued, in the
// goroutine of its caller and at the applied revision. Commits note what they change of them
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
	// aloneKeys is the number of keys above which a command begins a new batch, so that
	// earlier commands need not wait for its commit.
	aloneKeys = mvcc.PageRows
	// entriesAtOnce is how many index entries are looked up at once: every engine reads so many
	// with one statement.
	entriesAtOnce = 500
	// SmallLease is the same number for the revocation of a lease.
	SmallLease = 100
)

// errUnprepared: the command needs something that was not read ahead. Nothing was written, and
// the caller must prepare the command again.
var errUnprepared = errors.New("write: must be prepared again")

// Prefetch is what was read for one command before it was queued. Once the command is submitted,
// only the sequencer may use it.
type Prefetch struct {
	ranges []*aheadRange
	byKey  map[rangeKey]*aheadRange // the same
	spans  []coder.Span             // the keys of ranges, in order, without overlaps
	bases  map[string]indexEntry    // of the records of ranges to delete
	noted  map[string]notedKey      // keys of ranges that commits have changed since
	sorted []string                 // the keys of noted, nil if some are missing
	lease  *aheadLease
	past   map[*mvcc.RangeRequest]*mvcc.RangeResult // ranges at old revisions
	pages  []*mvcc.RangeRequest                     // ranges with a small limit, which the evaluation reads again
	keys   int                                      // read
	room   int64                                    // taken of Pipeline.txnRoom
}

type rangeKey struct{ key, end string }

func keyOf(kr mvcc.KeyRange) rangeKey { return rangeKey{string(kr.Key), string(kr.End)} }

// aheadRange has the records of a range at the revision at which they were read.
type aheadRange struct {
	mvcc.KeyRange
	values  bool
	deletes bool
	records []*coder.Record
}

// notedKey is a key that a commit has changed since it was read.
type notedKey struct {
	entry indexEntry
	rec   *coder.Record // may be a tombstone
}

// aheads are the preparations in which commits note their changes. Safe for concurrent use.
type aheads struct {
	mu     sync.Mutex
	active map[*Prefetch]struct{}
}

func (as *aheads) add(a *Prefetch) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.active == nil {
		as.active = make(map[*Prefetch]struct{})
	}
	as.active[a] = struct{}{}
}

func (as *aheads) remove(a *Prefetch) {
	as.mu.Lock()
	defer as.mu.Unlock()
	delete(as.active, a)
}

// note notes what a commit changed. The commit must be visible: a preparation that is added
// later reads at its revision or a newer one.
func (as *aheads) note(s *batchState) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for a := range as.active {
		for i := range s.changes {
			a.note(s, &s.changes[i])
		}
	}
}

// note must be fast: a transaction may have thousands of ranges, and many transactions may wait.
func (a *Prefetch) note(s *batchState, c *change) {
	key := c.rec.Key
	after, _ := slices.BinarySearchFunc(a.spans, key, func(span coder.Span, key []byte) int {
		if bytes.Compare(span.Start, key) <= 0 {
			return -1
		}
		return 1
	})
	if after > 0 && a.spans[after-1].Contains(key) {
		ks := s.keys[string(key)]
		a.noted[string(key)], a.sorted = notedKey{ks.entry(), ks.rec}, nil
	}
	if a.lease != nil {
		a.lease.note(s, c)
	}
}

// large reports whether the command begins a new batch.
func (a *Prefetch) large() bool {
	return a != nil && (a.keys > aloneKeys || a.lease != nil && a.keys > SmallLease)
}

// of returns what was read of kr, nil if it was not read.
func (a *Prefetch) of(kr mvcc.KeyRange, values bool) *aheadRange {
	if a == nil {
		return nil
	}
	if r := a.byKey[keyOf(kr)]; r != nil && (r.values || !values) {
		return r
	}
	return nil
}

// base returns the index entry of rec, a current record; false if it was not read.
func (a *Prefetch) base(rec *coder.Record) (indexEntry, bool) {
	if a == nil {
		return indexEntry{}, false
	}
	if n, ok := a.noted[string(rec.Key)]; ok {
		return n.entry, n.entry.of(rec)
	}
	e, ok := a.bases[string(rec.Key)]
	return e, ok && e.of(rec)
}

// current returns the records of r, one of its ranges, in the newest committed state, in key
// order.
func (a *Prefetch) current(r *aheadRange) []*coder.Record {
	if a.sorted == nil {
		a.sorted = slices.Sorted(maps.Keys(a.noted))
	}
	first, _ := slices.BinarySearch(a.sorted, string(r.Key))
	var merged overlay
	for _, k := range a.sorted[first:] {
		n := a.noted[k]
		if !coder.Contains(r.Key, r.End, n.rec.Key) {
			break
		}
		merged.newer = append(merged.newer, n.rec)
	}
	if len(merged.newer) == 0 {
		return r.records
	}
	merged.records = make([]*coder.Record, 0, len(r.records)+len(merged.newer))
	for _, rec := range r.records {
		merged.add(rec)
	}
	merged.addNewer(nil)
	return merged.records
}

// plan adds the ranges that t reads in all branches.
func (a *Prefetch) plan(t *mvcc.Txn) {
	for i := range t.Compares {
		c := &t.Compares[i]
		a.add(c.KeyRange, c.Target == mvcc.CompareValue, false)
	}
	for _, ops := range [][]mvcc.Op{t.Then, t.Else} {
		for _, op := range ops {
			switch {
			case op.Delete != nil:
				a.add(op.Delete.KeyRange, op.Delete.PrevKV, true)
			case op.Range != nil && op.Range.Revision > 0:
				if a.past == nil {
					a.past = make(map[*mvcc.RangeRequest]*mvcc.RangeResult)
				}
				a.past[op.Range] = nil
			case op.Range != nil && op.Range.Paged():
				a.pages = append(a.pages, op.Range)
			case op.Range != nil:
				a.add(op.Range.KeyRange, op.Range.NeedValues(), false)
			case op.Txn != nil:
				a.plan(op.Txn)
			}
		}
	}
}

func (a *Prefetch) add(kr mvcc.KeyRange, values, deletes bool) {
	if len(kr.End) == 0 {
		return
	}
	r := a.byKey[keyOf(kr)]
	if r == nil {
		r = &aheadRange{KeyRange: kr}
		a.ranges = append(a.ranges, r)
		a.byKey[keyOf(kr)] = r
	}
	r.values, r.deletes = r.values || values, r.deletes || deletes
}

// join sets spans.
func (a *Prefetch) join() {
	for _, r := range a.ranges {
		if span := r.Span(); !span.Empty() {
			a.spans = append(a.spans, span)
		}
	}
	slices.SortFunc(a.spans, func(x, y coder.Span) int { return bytes.Compare(x.Start, y.Start) })
	joined := a.spans[:0]
	for _, span := range a.spans {
		if last := len(joined) - 1; last < 0 || coder.EndBefore(joined[last].End, span.Start) {
			joined = append(joined, span)
		} else if coder.EndBefore(joined[last].End, span.End) {
			joined[last].End = span.End
		}
	}
	a.spans = joined
}

// prepare reads the ranges that t needs. It returns nil if t needs none. The caller must end
// the preparation with Release. Errors: mvcc.ErrTooLarge, read.ErrOvertaken, the leader's, ctx's,
// the database's.
func (p *Pipeline) prepare(ctx context.Context, t *mvcc.Txn) (*Prefetch, error) {
	a := &Prefetch{byKey: make(map[rangeKey]*aheadRange), noted: make(map[string]notedKey)}
	if a.plan(t); len(a.ranges) == 0 && len(a.past) == 0 && len(a.pages) == 0 {
		return nil, nil
	}
	a.join()
	p.aheads.add(a)
	err := p.readRanges(ctx, a)
	for tries := 1; tries < read.MaxRaces && errors.Is(err, mvcc.ErrCompacted); tries++ {
		err = p.readRanges(ctx, a)
	}
	if err == nil {
		err = p.readPast(ctx, a)
	}
	for _, q := range a.pages {
		if err == nil && len(q.End) > 0 {
			// This fills the view with the page and the count.
			_, err = p.cfg.Reader.At(p.cfg.Revisions.Visible()).Range(ctx, q)
		}
	}
	if errors.Is(err, mvcc.ErrCompacted) { // another leader may have compacted
		err = cmp.Or(p.cfg.Leader.VerifyLeader(ctx), read.ErrOvertaken)
	}
	if err != nil {
		p.Release(a)
		return nil, err
	}
	return a, nil
}

// Release ends a preparation; nil is none. Its command must have been answered or abandoned.
func (p *Pipeline) Release(a *Prefetch) {
	if a == nil {
		return
	}
	p.aheads.remove(a)
	if a.room > 0 {
		p.txnRoom.Release(a.room)
	}
}

// readRanges reads the ranges of a at the applied revision.
func (p *Pipeline) readRanges(ctx context.Context, a *Prefetch) error {
	read, size := p.cfg.Reader.At(p.cfg.Revisions.Visible()), 0
	a.keys, a.bases = 0, make(map[string]indexEntry)
	index := func(key []byte, x coder.Index) { a.bases[string(key)] = indexEntry{Index: x, exists: true} }
	for _, r := range a.ranges {
		read.OnIndex(nil)
		if r.deletes {
			read.OnIndex(index)
		}
		r.records = nil
		var failed error
		err := read.Scan(ctx, r.Span(), r.values, 0, func(records []*coder.Record) bool {
			if r.values {
				for _, rec := range records {
					size += len(rec.Value)
				}
			}
			r.records = append(r.records, records...)
			if a.keys += len(records); size > MaxTxnBytes {
				failed = fmt.Errorf("%w: its ranges read more than %d bytes", mvcc.ErrTooLarge, MaxTxnBytes)
			} else if a.keys > aloneKeys && a.room == 0 {
				failed = p.takeRoom(ctx, a)
			} else if a.keys > p.cfg.Limits.TxnKeys {
				failed = tooManyKeys(p.cfg.Limits.TxnKeys)
			}
			return failed == nil
		})
		if err = errors.Join(failed, err); err != nil {
			return err
		}
	}
	if err := read.Check(ctx); err != nil {
		return err
	}
	for _, r := range a.ranges {
		if !r.deletes {
			continue
		}
		if err := p.addBases(ctx, a.bases, r); err != nil {
			return err
		}
	}
	return nil
}

// addBases adds the index entries of those records of r that were in memory. Many it reads as a range, in long pages.
// Prefetch.base recognizes entries that are newer than the records.
func (p *Pipeline) addBases(ctx context.Context, bases map[string]indexEntry, r *aheadRange) error {
	var missing [][]byte
	for _, rec := range r.records {
		if _, ok := bases[string(rec.Key)]; !ok {
			missing = append(missing, rec.Key)
		}
	}
	if len(missing) <= entriesAtOnce {
		read, err := p.entriesOf(ctx, missing)
		maps.Copy(bases, read)
		return err
	}
	lo, hi := r.Span().IndexBounds()
	for more := true; more; {
		var rows []sqlstore.ListRow
		var err error
		rows, more, err = p.cfg.Store.List(ctx, sqlstore.ListQuery{Start: lo, End: hi, Limit: mvcc.LongestPage,
			KeysOnly: true})
		if err != nil {
			return err
		}
		for _, row := range rows {
			key, err := coder.DecodeIndexKey(row.Key)
			if err != nil {
				return err
			}
			x, err := coder.DecodeIndex(row.Index)
			if err != nil {
				return fmt.Errorf("index row of %q: %w", key, err)
			}
			if !x.Tombstone {
				bases[string(key)] = indexEntry{Index: x, exists: true}
			}
			lo = append(row.Key, 0)
		}
		more = more && len(rows) > 0
	}
	return nil
}

func tooManyKeys(most int) error {
	return fmt.Errorf("%w: its ranges hold more than %d keys", mvcc.ErrTooLarge, most)
}

// takeRoom waits until there is room in memory for all ranges of a. It counts them first, and
// returns mvcc.ErrTooLarge if they have too many keys.
func (p *Pipeline) takeRoom(ctx context.Context, a *Prefetch) error {
	most, rev := int64(p.cfg.Limits.TxnKeys), p.cfg.Revisions.Visible()
	total := int64(0)
	for _, r := range a.ranges {
		n, err := p.countUpTo(ctx, r.Span(), rev, most-total)
		if err != nil {
			return err
		}
		if total += n; total > most {
			return tooManyKeys(p.cfg.Limits.TxnKeys)
		}
	}
	total = max(total, 1)
	if err := p.txnRoom.Acquire(ctx, total); err != nil {
		return err
	}
	a.room = total
	return nil
}

// countUpTo counts the keys that left had at rev or has now, and stops soon after most: the count of a very large
// range takes seconds. It takes two statements unless there are many tombstones. A key that was changed since rev
// counts, because the range is read at rev.
func (p *Pipeline) countUpTo(ctx context.Context, left coder.Span, rev, most int64) (n int64, err error) {
	lo, hi := left.IndexBounds()
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

// entriesOf returns the index entries of keys, from the index cache if they are there. It does
// not cache the others, so that many keys do not evict those in use.
func (p *Pipeline) entriesOf(ctx context.Context, keys [][]byte) (map[string]indexEntry, error) {
	entries := make(map[string]indexEntry, len(keys))
	for chunk := range slices.Chunk(keys, entriesAtOnce) {
		var missing []string
		for _, k := range chunk {
			if e, ok := p.index.peek(k); ok {
				entries[string(k)] = e
			} else {
				missing = append(missing, string(k))
			}
		}
		if len(missing) == 0 {
			continue
		}
		read, err := p.readIndex(ctx, missing)
		if err != nil {
			return nil, err
		}
		for i, e := range read {
			entries[missing[i]] = e
		}
	}
	return entries, nil
}

// readPast answers the ranges of a at old revisions, which do not change. The sequencer decides
// again about those that are refused here.
func (p *Pipeline) readPast(ctx context.Context, a *Prefetch) error {
	for q := range a.past {
		res, err := p.cfg.Reader.At(p.cfg.Revisions.Visible()).RangeAt(ctx, q)
		switch {
		case err == nil:
			a.past[q] = res
		case errors.Is(err, mvcc.ErrCompacted), errors.Is(err, mvcc.ErrFutureRevision):
		default:
			return err
		}
	}
	return nil
}

// aheadLease has keys of a lease, and what has changed since they were read.
type aheadLease struct {
	id int64
	// keys are the first keys of the lease, in key order. With more, it has others.
	keys  [][]byte
	more  bool
	bases map[string]indexEntry
	noted map[string]notedKey
}

// note notes a change that attaches a key to the lease, or of a key that was attached.
func (a *aheadLease) note(s *batchState, c *change) {
	concerns := c.rec.Lease == a.id || c.prev != nil && c.prev.Lease == a.id
	if !concerns && len(a.noted) > 0 {
		_, concerns = a.noted[string(c.rec.Key)]
	}
	if concerns {
		ks := s.keys[string(c.rec.Key)]
		a.noted[string(c.rec.Key)] = notedKey{ks.entry(), ks.rec}
	}
}
