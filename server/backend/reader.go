package backend

import (
	"bytes"
	"context"
	"fmt"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// reader answers ranges at a revision, from memory as far as that knows, else from
// the database. It keeps no snapshot open: rows above the revision are filtered,
// and replaced by the version that the revision sees.
type reader struct {
	store    sqlstore.Store
	records  *recordCache
	ranges   *rangeCache
	counts   *countCache
	pieces   *countMap
	frontier func() int64
	mark     func(ctx context.Context) (int64, error) // see Backend.mark
}

// reading is what one request reads, at one revision, which was not above the
// frontier when it began.
type reading struct {
	*reader
	rev int64
	// table says that rows were read: compaction may have taken some that rev needs
	// unless its mark, looked at afterwards, is not above rev.
	table bool
	// counted are counts that may be worth remembering.
	counted []countedRange
}

func (r *reader) at(rev int64) *reading { return &reading{reader: r, rev: rev} }

// scanPage bounds the index rows read by one statement.
const scanPage = 1000

// get returns the record of key, nil if there is none.
func (r *reading) get(ctx context.Context, key []byte, needValue bool) (*coder.Record, error) {
	if rec, ok := r.records.get(key); ok && rec.ModRevision <= r.rev {
		return rec, nil
	}
	if rec, ok := r.ranges.get(key, r.rev, needValue); ok {
		return rec, nil
	}
	keep := func(*coder.Record) {}
	if needValue {
		keep = r.records.load(key)
	}
	r.table = true
	lo, hi := coder.IndexBounds(key, nil)
	page, _, err := r.readRows(ctx, lo, hi, needValue, 1)
	if err != nil || len(page) == 0 {
		keep(nil)
		return nil, err
	}
	rec := page[0].rec
	if rec != nil && rec.Tombstone {
		rec = nil
	}
	if page[0].newest {
		keep(rec)
	} else {
		keep(nil)
	}
	return rec, nil
}

// scan calls emit with the records of kr, a range of several keys, in key order,
// some at a time, until emit returns false. want is how many the caller expects to
// take, 0 for all. Without needValue records may come without their value. The
// slice is valid during the call only.
func (r *reading) scan(ctx context.Context, kr KeyRange, needValue bool, want int64, emit func([]*coder.Record) bool) error {
	var records []*coder.Record
	left, again := want, false
	from, end := kr.bounds()
	for {
		limit := scanPage
		if want > 0 && left < scanPage && !again {
			limit = int(left)
		}
		var next []byte
		records, next = r.ranges.read(records[:0], from, end, r.rev, needValue, limit)
		if len(records) == 0 && bytes.Equal(next, from) {
			var err error
			if records, next, err = r.scanTable(ctx, records, from, r.ranges.gap(from, end, r.rev, needValue), needValue, limit); err != nil {
				return err
			}
			again = true // tombstones may have been among the rows
		}
		if len(records) > 0 && !emit(records) || next == nil || !before(next, end) {
			return nil
		}
		left = max(left-int64(len(records)), 1)
		from = next
	}
}

// scanTable appends to out the records that up to limit rows of [from, end) make at
// the revision, and offers them to the cache. It returns where to go on: end, if
// that was reached.
func (r *reading) scanTable(ctx context.Context, out []*coder.Record, from, end []byte, needValue bool, limit int) (_ []*coder.Record, next []byte, err error) {
	r.table = true
	fill := r.ranges.fill(from, end, needValue)
	lo, hi := indexBounds(from, end)
	page, more, err := r.readRows(ctx, lo, hi, needValue, limit)
	if err != nil {
		fill.drop()
		return nil, nil, err
	}
	for i := range page {
		if rec := page[i].rec; rec != nil && !rec.Tombstone {
			out = append(out, rec)
		}
	}
	if next = end; more && len(page) > 0 {
		next = behind(page[len(page)-1].key)
	}
	if fill != nil {
		r.offer(ctx, fill, next, page)
	}
	return out, next, nil
}

// offer gives the cache what a fill read, up to next.
func (r *reading) offer(ctx context.Context, fill *rangeFill, next []byte, page []resolved) {
	// At revisions below the mark there may be keys whose tombstones are gone.
	floor, err := r.mark(ctx)
	items := make([]item, 0, len(page))
	for i := 0; i < len(page) && err == nil; i++ {
		p := &page[i]
		floor = max(floor, p.index.ModRevision)
		rec := p.rec
		switch {
		case p.index.Tombstone:
			continue
		case p.newest:
		case fill.values:
			rec, err = decodeNewest(p)
		default:
			rec = p.index.Record(p.key)
		}
		items = append(items, item{rec: rec})
	}
	if err != nil {
		fill.drop()
		return
	}
	fill.keep(next, items, floor)
}

// indexBounds returns the bounds of the index rows of the keys from from on and
// before end; nil is behind every key.
func indexBounds(from, end []byte) (lo, hi []byte) {
	if end == nil {
		end = []byte{0}
	}
	return coder.IndexBounds(from, end)
}

// readRows reads up to limit index rows of [lo, hi), and says whether there may be
// more.
func (r *reading) readRows(ctx context.Context, lo, hi []byte, needValue bool, limit int) (page []resolved, more bool, err error) {
	rows, more, err := r.store.List(ctx, sqlstore.ListQuery{Start: lo, End: hi, Limit: limit, KeysOnly: !needValue})
	if err != nil {
		return nil, false, err
	}
	page, err = r.resolve(ctx, rows, needValue)
	return page, more, err
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
		return nil, fmt.Errorf("backend: the version row of %q at revision %d is missing", p.key, p.index.ModRevision)
	}
	return coder.DecodeVersion(p.key, p.index.ModRevision, p.version)
}

// resolve turns index rows into the records that the revision sees. Keys changed
// behind it are looked up again, all of a page in one or two statements.
func (r *reading) resolve(ctx context.Context, rows []sqlstore.ListRow, needValue bool) ([]resolved, error) {
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
	if err := r.lookupExact(ctx, page, exact); err != nil {
		return nil, err
	}
	return page, r.lookupFloor(ctx, page, floor)
}

func (r *reading) lookupExact(ctx context.Context, page []resolved, at []int) error {
	if len(at) == 0 {
		return nil
	}
	internal := make([][]byte, len(at))
	for n, i := range at {
		internal[n] = coder.EncodeVersionKey(page[i].key, page[i].index.PrevRevision)
	}
	values, err := r.store.MultiGet(ctx, internal)
	if err != nil {
		return err
	}
	for n, i := range at {
		if values[n] == nil {
			continue // a tombstone that compaction removed
		}
		if page[i].rec, err = coder.DecodeVersion(page[i].key, page[i].index.PrevRevision, values[n]); err != nil {
			return err
		}
	}
	return nil
}

func (r *reading) lookupFloor(ctx context.Context, page []resolved, at []int) error {
	if len(at) == 0 {
		return nil
	}
	ranges := make([]sqlstore.Partition, len(at))
	for n, i := range at {
		ranges[n].Start, ranges[n].End = coder.VersionsUpTo(page[i].key, r.rev)
	}
	rows, err := r.store.Floor(ctx, ranges)
	if err != nil {
		return err
	}
	for n, i := range at {
		if rows[n].Key == nil {
			continue // created behind the revision
		}
		_, found, err := coder.DecodeVersionKey(rows[n].Key)
		if err != nil {
			return err
		}
		if page[i].rec, err = coder.DecodeVersion(page[i].key, found, rows[n].Value); err != nil {
			return err
		}
	}
	return nil
}
