package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
)

// A command that reads a range, or the keys of a lease, reads them before it is
// queued, in its caller's goroutine and at the frontier of that time. Commits that
// happen before the command is evaluated note what they change of it. So evaluation
// needs no statement however many keys there are, and other writes wait for the
// commit alone.

const (
	// MaxTxnKeys is the most keys that the ranges of one writing transaction may hold:
	// its range deletes, range compares and ranges without a small limit, in all
	// branches together. A transaction with more is refused. A commit of so many
	// deletes takes some seconds and must fit Config.CommitTimeout.
	MaxTxnKeys = 120_000
	// MaxTxnBytes bounds the values that those ranges read.
	MaxTxnBytes = 64 << 20
	// aloneKeys is how many keys make a command so large that it is committed alone:
	// the commands before it in the batch need not wait for it.
	aloneKeys = scanPage
)

// errUnprepared: the command needs something that was not read ahead, or that has
// changed too much since. Nothing was written; the caller prepares it again.
var errUnprepared = errors.New("backend: must be prepared again")

// ahead is what was read for one command before it was queued. The caller fills it,
// then it belongs to the sequencer.
type ahead struct {
	ranges []*aheadRange
	lease  *aheadLease
	past   map[*RangeRequest]*RangeResult // ranges at old revisions
	pages  []*RangeRequest                // piecemeal ones, which evaluation reads again
	keys   int                            // read
	room   int64                          // taken of leader.txnRoom
}

// aheadRange holds the records of a range as of the frontier that they were read at,
// and what has changed since.
type aheadRange struct {
	KeyRange
	values  bool
	deletes bool
	records []*coder.Record
	bases   map[string]indexEntry // of the records, if deletes
	noted   map[string]notedKey
}

// notedKey is a key that commits have changed since it was read.
type notedKey struct {
	entry indexEntry
	rec   *coder.Record // may be a tombstone
}

// aheads are the preparations that commits have to note their changes in.
// Safe for concurrent use.
type aheads struct {
	mu     sync.Mutex
	active map[*ahead]struct{}
}

func (as *aheads) add(a *ahead) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.active == nil {
		as.active = make(map[*ahead]struct{})
	}
	as.active[a] = struct{}{}
}

func (as *aheads) remove(a *ahead) {
	as.mu.Lock()
	defer as.mu.Unlock()
	delete(as.active, a)
}

// note records what a commit changed. Sequencer only, after the frontier has moved:
// a preparation that is added later reads at that frontier.
func (as *aheads) note(s *batchState) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for a := range as.active {
		for i := range s.changes {
			a.note(s, &s.changes[i])
		}
	}
}

func (a *ahead) note(s *batchState, c *change) {
	key := c.rec.Key
	for _, r := range a.ranges {
		if coder.Contains(r.Key, r.End, key) {
			ks := s.keys[string(key)]
			r.noted[string(key)] = notedKey{ks.entry(), ks.rec}
		}
	}
	if a.lease != nil {
		a.lease.note(s, c)
	}
}

// large reports whether the command is not to be committed with those before it.
func (a *ahead) large() bool {
	return a != nil && (a.keys > aloneKeys || a.lease != nil && a.keys > smallLease)
}

// of returns what was read of kr; nil if nothing was.
func (a *ahead) of(kr KeyRange, values bool) *aheadRange {
	if a == nil {
		return nil
	}
	for _, r := range a.ranges {
		if bytes.Equal(r.Key, kr.Key) && bytes.Equal(r.End, kr.End) && (r.values || !values) {
			return r
		}
	}
	return nil
}

// base returns the index entry that the table holds of rec, a current record.
func (a *ahead) base(rec *coder.Record) (indexEntry, bool) {
	if a == nil {
		return indexEntry{}, false
	}
	for _, r := range a.ranges {
		if !r.deletes || !coder.Contains(r.Key, r.End, rec.Key) {
			continue
		}
		if n, ok := r.noted[string(rec.Key)]; ok {
			return n.entry, n.entry.of(rec)
		}
		if e, ok := r.bases[string(rec.Key)]; ok {
			return e, e.of(rec)
		}
	}
	return indexEntry{}, false
}

// current returns the records of the range in the newest committed state, in key
// order.
func (r *aheadRange) current() []*coder.Record {
	if len(r.noted) == 0 {
		return r.records
	}
	noted := slices.Sorted(maps.Keys(r.noted))
	out := make([]*coder.Record, 0, len(r.records)+len(noted))
	for _, rec := range r.records {
		for len(noted) > 0 && noted[0] < string(rec.Key) {
			out, noted = appendLive(out, r.noted[noted[0]].rec), noted[1:]
		}
		if len(noted) > 0 && noted[0] == string(rec.Key) {
			out, noted = appendLive(out, r.noted[noted[0]].rec), noted[1:]
			continue
		}
		out = append(out, rec)
	}
	for _, k := range noted {
		out = appendLive(out, r.noted[k].rec)
	}
	return out
}

func appendLive(out []*coder.Record, rec *coder.Record) []*coder.Record {
	if rec.Tombstone {
		return out
	}
	return append(out, rec)
}

// plan adds the ranges that t reads, in any branch.
func (a *ahead) plan(t *Txn) {
	for i := range t.Compares {
		c := &t.Compares[i]
		a.add(c.KeyRange, c.Target == CompareValue, false)
	}
	for _, ops := range [][]Op{t.Then, t.Else} {
		for _, op := range ops {
			switch {
			case op.Delete != nil:
				a.add(op.Delete.KeyRange, op.Delete.PrevKV, true)
			case op.Range != nil && op.Range.Revision > 0:
				if a.past == nil {
					a.past = make(map[*RangeRequest]*RangeResult)
				}
				a.past[op.Range] = nil
			case op.Range != nil && op.Range.piecemeal():
				a.pages = append(a.pages, op.Range)
			case op.Range != nil:
				a.add(op.Range.KeyRange, op.Range.needValues(), false)
			case op.Txn != nil:
				a.plan(op.Txn)
			}
		}
	}
}

func (a *ahead) add(kr KeyRange, values, deletes bool) {
	if len(kr.End) == 0 {
		return
	}
	for _, r := range a.ranges {
		if bytes.Equal(r.Key, kr.Key) && bytes.Equal(r.End, kr.End) {
			r.values, r.deletes = r.values || values, r.deletes || deletes
			return
		}
	}
	a.ranges = append(a.ranges, &aheadRange{KeyRange: kr, values: values, deletes: deletes, noted: make(map[string]notedKey)})
}

// piecemeal reports whether q is cheap on the sequencer: it reads a page at most, or
// only counts.
func (q *RangeRequest) piecemeal() bool {
	return q.CountOnly || len(q.End) == 0 || q.Limit > 0 && q.Limit <= scanPage && !q.filtered() && q.inKeyOrder()
}

func (q *RangeRequest) needValues() bool {
	return !q.CountOnly && (!q.KeysOnly || q.SortBy == SortByValue)
}

// prepare reads what t needs of ranges. A nil ahead says that it needs none. The
// caller ends it with settle. Errors: ErrTooLarge, the context's, the database's.
func (l *leader) prepare(ctx context.Context, t *Txn) (*ahead, error) {
	a := &ahead{}
	if a.plan(t); len(a.ranges) == 0 && len(a.past) == 0 && len(a.pages) == 0 {
		return nil, nil
	}
	l.aheads.add(a)
	err := l.readRanges(ctx, a)
	for tries := 1; tries < maxReadRaces && errors.Is(err, errReadRaced); tries++ {
		err = l.readRanges(ctx, a)
	}
	if err == nil {
		err = l.readPast(ctx, a)
	}
	for _, q := range a.pages {
		if err == nil && len(q.End) > 0 {
			// The caches know then how many keys there are, and the page if they admit it.
			_, err = l.reader.at(l.Revision()).rangeOf(ctx, q)
		}
	}
	if err != nil {
		l.settle(a)
		return nil, err
	}
	return a, nil
}

// settle ends a preparation. Its command must no longer be evaluated, unless that
// is under way.
func (l *leader) settle(a *ahead) {
	if a == nil {
		return
	}
	l.aheads.remove(a)
	if a.room > 0 {
		l.txnRoom.Release(a.room)
	}
}

// readRanges reads the ranges of a at the frontier.
func (l *leader) readRanges(ctx context.Context, a *ahead) error {
	read, size := l.reader.at(l.Revision()), 0
	a.keys = 0
	for _, r := range a.ranges {
		r.records = nil
		var failed error
		err := read.scan(ctx, r.KeyRange, r.values, 0, func(records []*coder.Record) bool {
			if r.values {
				for _, rec := range records {
					size += len(rec.Value)
				}
			}
			r.records = append(r.records, records...)
			if a.keys += len(records); size > MaxTxnBytes {
				failed = fmt.Errorf("%w: its ranges read more than %d bytes", ErrTooLarge, MaxTxnBytes)
			} else if a.keys > aloneKeys && a.room == 0 {
				failed = l.takeRoom(ctx, a)
			} else if a.keys > l.cfg.maxTxnKeys {
				failed = tooManyKeys(l.cfg.maxTxnKeys)
			}
			return failed == nil
		})
		if err = errors.Join(failed, err); err != nil {
			return err
		}
	}
	if err := read.stillReadable(ctx); errors.Is(err, ErrCompacted) {
		return errReadRaced
	} else if err != nil {
		return err
	}
	for _, r := range a.ranges {
		if err := l.readBases(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func tooManyKeys(most int) error {
	return fmt.Errorf("%w: its ranges hold more than %d keys", ErrTooLarge, most)
}

// takeRoom waits until there is room in memory for a's ranges, all of them. It
// returns ErrTooLarge, before they are read, if they hold too many keys.
func (l *leader) takeRoom(ctx context.Context, a *ahead) error {
	total, read := int64(0), l.reader.at(l.Revision())
	for _, r := range a.ranges {
		n, err := l.countUpTo(ctx, read, r.KeyRange, int64(l.cfg.maxTxnKeys)-total)
		if err != nil {
			return err
		}
		if total += n; total > int64(l.cfg.maxTxnKeys) {
			return tooManyKeys(l.cfg.maxTxnKeys)
		}
	}
	total = max(total, 1)
	if err := l.txnRoom.Acquire(ctx, total); err != nil {
		return err
	}
	a.room = total
	return nil
}

// countUpTo counts the keys of kr, and stops soon after most: the count of a range of
// very many keys that nobody has counted before takes seconds.
func (l *leader) countUpTo(ctx context.Context, read *reading, kr KeyRange, most int64) (n int64, err error) {
	from, end := kr.bounds()
	for n <= most {
		lo, hi := indexBounds(from, end)
		row, err := l.store.Skip(ctx, lo, hi, int(most)+1)
		if err != nil {
			return 0, err
		}
		upTo := end
		if row != nil { // behind so many rows, of which some may be tombstones
			if upTo, err = coder.DecodeIndexKey(row); err != nil {
				return 0, err
			}
		}
		part, err := read.count(ctx, keysBetween(from, upTo))
		if err != nil {
			return 0, err
		}
		if n += part; row == nil {
			break
		}
		from = upTo
	}
	return n, nil
}

// readBases reads the index entries of the records that r deletes. Entries that are
// newer than the records are told apart by ahead.base.
func (l *leader) readBases(ctx context.Context, r *aheadRange) error {
	if !r.deletes {
		return nil
	}
	keys := make([][]byte, len(r.records))
	for i, rec := range r.records {
		keys[i] = rec.Key
	}
	var err error
	r.bases, err = l.entriesOf(ctx, keys)
	return err
}

// entriesOf returns the index entries of keys, cached ones if there are any. The index
// cache does not learn them, so that many keys cannot push out those in use.
func (l *leader) entriesOf(ctx context.Context, keys [][]byte) (map[string]indexEntry, error) {
	entries := make(map[string]indexEntry, len(keys))
	for chunk := range slices.Chunk(keys, scanPage) {
		var missing []string
		for _, k := range chunk {
			if e, ok := l.index.peek(k); ok {
				entries[string(k)] = e
			} else {
				missing = append(missing, string(k))
			}
		}
		if len(missing) == 0 {
			continue
		}
		read, err := l.readIndex(ctx, missing)
		if err != nil {
			return nil, err
		}
		for i, e := range read {
			entries[missing[i]] = e
		}
	}
	return entries, nil
}

// readPast answers a's ranges at old revisions, which do not change. Those that are
// refused now are judged again by the sequencer.
func (l *leader) readPast(ctx context.Context, a *ahead) error {
	for q := range a.past {
		res, err := l.rangeAt(ctx, q, l.Revision())
		switch {
		case err == nil:
			a.past[q] = res
		case errors.Is(err, ErrCompacted), errors.Is(err, ErrFutureRevision):
		default:
			return err
		}
	}
	return nil
}
