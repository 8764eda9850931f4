package read

import (
	"cmp"
	"context"
	"fmt"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/keyspace"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Get returns the record of key, nil if there is none.
func (r *Reading) Get(ctx context.Context, key []byte, needValue bool) (*coder.Record, error) {
	if rec, ok := r.reader.view.Get(key, r.rev, needValue); ok {
		return rec, nil
	}
	var fill *keyspace.Fill
	if needValue {
		fill = r.reader.view.BeginKey(key)
	}
	r.readsTable()
	row, err := r.readKey(ctx, coder.EncodeIndexKey(key), needValue)
	var page []resolved
	if err == nil && row.Key != nil {
		page, err = r.resolve(ctx, []sqlstore.ListRow{row}, needValue)
	}
	if err != nil || len(page) == 0 {
		fill.Drop()
		return nil, err
	}
	rec := page[0].rec
	if rec != nil && rec.Tombstone {
		rec = nil
	}
	if page[0].newest {
		fill.KeepKey(rec)
	} else {
		fill.Drop()
	}
	return rec, nil
}

// readKey reads an index row, and the version row that it names if needed. The Key of a missing row is nil. The
// sequencer, which takes no turns, does not wait for reads of others either.
func (r *Reading) readKey(ctx context.Context, key []byte, version bool) (sqlstore.ListRow, error) {
	lookup, get := r.reader.lookups.get, r.reader.rows.get
	if r.turn == 0 {
		lookup, get = r.reader.lookups.alone, r.reader.rows.alone
	}
	if version {
		return lookup(ctx, key)
	}
	index, err := get(ctx, key)
	if err != nil || index == nil {
		return sqlstore.ListRow{}, err
	}
	return sqlstore.ListRow{Key: key, Index: index}, nil
}

// Scan calls emit with the records of span, in key order, some at a time, until emit
// returns false. want is how many the caller expects to take, 0 for all. Without needValue
// records may come without their value. The slice is valid during the call only.
func (r *Reading) Scan(ctx context.Context, span coder.Span, needValue bool, want int64,
	emit func([]*coder.Record) bool) error {
	var records []*coder.Record
	left, page, again := want, mvcc.PageRows, false
	turn := 0 // pages that the reading may still read before it waits for others
	defer func() { r.endTurn(turn) }()
	for {
		limit := page
		if want > 0 && left < int64(page) && !again {
			limit = int(left)
		}
		records = records[:0]
		rest, known := span, false
		if !r.tableOnly {
			records, rest, known = r.reader.view.Scan(records, span, r.rev, needValue, limit)
		}
		if !known {
			var next []byte
			var most int
			var err error
			if again && turn == 0 {
				if turn, err = r.awaitTurn(ctx); err != nil {
					return err
				}
			}
			if records, next, most, err = r.scanTable(ctx, records, rest, needValue, limit); err != nil {
				return err
			}
			if turn == 1 {
				r.endTurn(turn)
			}
			turn = max(turn-1, 0)
			rest = coder.Span{Start: next, End: span.End}
			again = true // tombstones may have been among the rows
			switch {
			case most > 0:
				page = most
			case want == 0:
				page = min(2*page, mvcc.LongestPage)
			default:
				page = mvcc.PageRows
			}
		}
		if len(records) > 0 && !emit(records) || rest.Start == nil || rest.Empty() {
			return nil
		}
		left = max(left-int64(len(records)), 1)
		span = rest
	}
}

// EachIndex calls f with the index row of each key of span that exists and was not changed since the revision.
func (r *Reading) EachIndex(ctx context.Context, span coder.Span, f func(key []byte, x coder.Index)) error {
	r.indexed, r.tableOnly = f, true
	return r.Scan(ctx, span, false, 0, func([]*coder.Record) bool { return true })
}

// awaitTurn returns how many pages of the table the reading may read now, 0 if it need not ask. endTurn must follow.
func (r *Reading) awaitTurn(ctx context.Context) (pages int, err error) {
	if r.turn == 0 {
		return 0, nil
	}
	select {
	case r.reader.turns <- struct{}{}:
		return r.turn, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// endTurn lets another reading read if pages are left of this one's turn.
func (r *Reading) endTurn(pages int) {
	if pages > 0 {
		<-r.reader.turns
	}
}

// List returns the records of span, in key order. It stops after limit records; 0: no limit. Without needValue
// records may come without their value. The caller owns the slice.
func (r *Reading) List(ctx context.Context, span coder.Span, needValue bool, limit int64) ([]*coder.Record, error) {
	var all []*coder.Record
	err := r.Scan(ctx, span, needValue, limit, func(records []*coder.Record) bool {
		if limit > 0 {
			records = records[:min(int64(len(records)), limit-int64(len(all)))]
		}
		all = append(all, records...)
		return limit == 0 || int64(len(all)) < limit
	})
	return all, err
}

// scanTable appends to out the records that up to limit rows of span make at the
// revision, and offers them to the view. It returns where to continue: the end of span, if
// that was reached, and, if it looked up older versions, the most rows to read there.
func (r *Reading) scanTable(ctx context.Context, out []*coder.Record, span coder.Span, needValue bool,
	limit int) (_ []*coder.Record, next []byte, most int, err error) {
	r.readsTable()
	fill := r.reader.view.Begin(span, needValue)
	lo, hi := span.IndexBounds()
	page, more, err := r.readRows(ctx, lo, hi, needValue, limit)
	if err != nil {
		fill.Drop()
		return nil, nil, 0, err
	}
	for i := range page {
		if !page[i].newest {
			most = mvcc.PageRows
		}
		if rec := page[i].rec; rec != nil && !rec.Tombstone {
			out = append(out, rec)
			if r.indexed != nil && page[i].newest {
				r.indexed(page[i].key, page[i].index)
			}
		}
	}
	if next = span.End; more && len(page) > 0 {
		next = coder.KeyAfter(page[len(page)-1].key)
	}
	if fill != nil {
		r.offer(ctx, fill, next, page)
	}
	if len(page) < limit { // its rows are large, or the last
		most = min(most, 2*len(page))
	}
	return out, next, most, nil
}

// offer gives the view what a fill read, up to next.
func (r *Reading) offer(ctx context.Context, fill *keyspace.Fill, next []byte, page []resolved) {
	// At revisions below the mark there may be keys whose tombstones are gone.
	floor, err := r.reader.node.Mark(ctx)
	newest := make([]*coder.Record, 0, len(page))
	for i := 0; i < len(page) && err == nil; i++ {
		p := &page[i]
		floor = max(floor, p.index.ModRevision)
		rec := p.rec
		switch {
		case p.index.Tombstone:
			continue
		case p.newest:
		case fill.Values():
			rec, err = decodeNewest(p)
		default:
			rec = p.index.Record(p.key)
		}
		newest = append(newest, rec)
	}
	if err != nil {
		fill.Drop()
		return
	}
	fill.Keep(next, newest, floor)
}

// readRows reads up to limit index rows of [lo, hi), and says whether there may be
// more.
func (r *Reading) readRows(ctx context.Context, lo, hi []byte, needValue bool,
	limit int) (page []resolved, more bool, err error) {
	rows, more, err := r.reader.store.List(ctx,
		sqlstore.ListQuery{Start: lo, End: hi, Limit: limit, MaxBytes: r.pageBytes, KeysOnly: !needValue})
	if err != nil {
		return nil, false, err
	}
	page, err = r.resolve(ctx, rows, needValue)
	return page, more || len(page) < len(rows), err
}

// resolved is an index row, and the record that the read revision sees, which may
// be a tombstone, or nil if there is none.
type resolved struct {
	key     []byte
	index   coder.Index
	version []byte // the newest version's row, if values were asked for
	rec     *coder.Record
	newest  bool // rec is the newest version
}

func decodeNewest(p *resolved) (*coder.Record, error) {
	if p.version == nil {
		return nil, fmt.Errorf("replica: the version row of %q at revision %d is missing", p.key, p.index.ModRevision)
	}
	return coder.DecodeVersion(p.key, p.index.ModRevision, p.version)
}

// resolve turns index rows into the records that the revision sees: the first ones, if older versions have more bytes
// than a page. Keys changed after the revision are looked up again, many in a statement.
func (r *Reading) resolve(ctx context.Context, rows []sqlstore.ListRow, needValue bool) ([]resolved, error) {
	page := make([]resolved, len(rows))
	var exact, floor []int // positions to look up by the previous revision, or by search
	for i, row := range rows {
		p := &page[i]
		p.version = row.Version
		var err error
		if p.index, err = coder.DecodeIndex(row.Index); err != nil {
			return nil, err
		}
		if p.key, err = coder.DecodeIndexKey(row.Key); err != nil {
			return nil, err
		}
		switch x := p.index; {
		case x.ModRevision <= r.rev:
			p.newest = true
			if x.Tombstone || !needValue {
				p.rec = x.Record(p.key)
			} else if p.rec, err = decodeNewest(p); err != nil {
				return nil, err
			}
		case x.Gap || x.PrevRevision > r.rev:
			floor = append(floor, i)
		case x.PrevRevision > 0:
			exact = append(exact, i)
		}
	}
	end, err := r.lookUp(ctx, page, exact, len(page), needValue, r.previous)
	if err == nil {
		end, err = r.lookUp(ctx, page, floor, end, needValue, r.latest)
	}
	return page[:end], err
}

// firstOlder and olderAtATime are how many older versions the first statement of a page reads, and the most that one
// reads. Their sizes are not known before.
const (
	firstOlder   = 16
	olderAtATime = 256
)

// lookUp sets the records of the rows of page[:end] whose positions are in at, to what read returns for them. It
// returns end, or the position of the first row that it did not look up, because those before have the bytes of a
// page. Without needValue it looks up all, and keeps no values.
func (r *Reading) lookUp(ctx context.Context, page []resolved, at []int, end int, needValue bool,
	read func(context.Context, []resolved, []int) ([]*coder.Record, error)) (int, error) {
	maxBytes := cmp.Or(r.pageBytes, maxReadBytes)
	pages := watch.NewPages(firstOlder, olderAtATime, maxBytes)
	for len(at) > 0 && at[0] < end {
		if pages.Full() {
			if needValue {
				return at[0], nil
			}
			pages = watch.NewPages(firstOlder, olderAtATime, maxBytes)
		}
		some := at[:min(len(at), pages.Next())]
		at = at[len(some):]
		records, err := read(ctx, page, some)
		if err != nil {
			return 0, err
		}
		for n, i := range some {
			rec := records[n]
			if rec == nil {
				continue
			}
			pages.Add(len(rec.Key) + len(rec.Value))
			if !needValue {
				rec.Value = nil
			}
			page[i].rec = rec
		}
	}
	return end, nil
}

// previous returns the versions that the newest ones of the rows at have replaced, nil for a tombstone that compaction
// removed.
func (r *Reading) previous(ctx context.Context, page []resolved, at []int) ([]*coder.Record, error) {
	keys, revs := make([][]byte, len(at)), make([]int64, len(at))
	for n, i := range at {
		keys[n], revs[n] = page[i].key, page[i].index.PrevRevision
	}
	return history.Versions(ctx, r.reader.store, keys, revs)
}

// latest returns the versions of the rows at that the revision sees, nil for a key created after it.
func (r *Reading) latest(ctx context.Context, page []resolved, at []int) ([]*coder.Record, error) {
	ranges := make([]sqlstore.Partition, len(at))
	for n, i := range at {
		ranges[n].Start, ranges[n].End = coder.VersionsUpTo(page[i].key, r.rev)
	}
	rows, err := r.reader.store.LatestAtOrBefore(ctx, ranges)
	if err != nil {
		return nil, err
	}
	records := make([]*coder.Record, len(at))
	for n, i := range at {
		if rows[n].Key == nil {
			continue
		}
		_, found, err := coder.DecodeVersionKey(rows[n].Key)
		if err != nil {
			return nil, err
		}
		if records[n], err = coder.DecodeVersion(page[i].key, found, rows[n].Value); err != nil {
			return nil, err
		}
	}
	return records, nil
}
