package backend

import (
	"context"
	"fmt"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// reader answers ranges at a revision from the database. It keeps no snapshot
// open: rows above the revision are filtered, and replaced by the version that
// the revision sees.
type reader struct {
	store    sqlstore.Store
	cache    *recordCache
	counts   *countCache
	frontier func() int64
	mark     func(ctx context.Context) (int64, error) // see Backend.mark
}

// scanPage bounds the index rows read by one statement.
const scanPage = 1000

// get returns the record of key at revision rev, nil if there is none. current
// says that rev is the frontier, read before the call.
func (r *reader) get(ctx context.Context, key []byte, rev int64, current, needValue bool) (*coder.Record, error) {
	var keep func(*coder.Record)
	if current {
		if rec, ok := r.cache.get(key); ok && rec.ModRevision <= rev {
			return rec, nil
		}
		if needValue {
			keep = r.cache.load(key)
		}
	}
	rec, newest, err := r.readOne(ctx, key, rev, needValue)
	if keep != nil {
		if err != nil || !newest {
			keep(nil)
		} else {
			keep(rec)
		}
	}
	return rec, err
}

// readOne reads key's record at rev; newest says that no newer version was there
// when it was read.
func (r *reader) readOne(ctx context.Context, key []byte, rev int64, needValue bool) (rec *coder.Record, newest bool, err error) {
	newest = true
	lo, hi := coder.IndexBounds(key, nil)
	err = r.scanRows(ctx, lo, hi, rev, needValue, 1, func(found *coder.Record, isNewest bool) bool {
		rec, newest = found, isNewest
		return true
	})
	if rec != nil && rec.Tombstone {
		rec = nil
	}
	return rec, newest, err
}

// scan calls emit with the records of kr at revision rev, in key order, until
// emit returns false. want is how many the caller expects to take, 0 for all.
// Without needValue the records have no value.
func (r *reader) scan(ctx context.Context, kr KeyRange, rev int64, needValue bool, want int64, emit func(*coder.Record) bool) error {
	lo, hi := coder.IndexBounds(kr.Key, kr.End)
	return r.scanRows(ctx, lo, hi, rev, needValue, want, func(rec *coder.Record, _ bool) bool {
		return rec.Tombstone || emit(rec)
	})
}

// scanRows is scan over internal bounds; it emits tombstones too, and says of
// each record whether it was the newest version when it was read.
func (r *reader) scanRows(ctx context.Context, lo, hi []byte, rev int64, needValue bool, want int64, emit func(rec *coder.Record, newest bool) bool) error {
	limit := scanPage
	if want > 0 && want < scanPage {
		limit = int(want)
	}
	for {
		rows, more, err := r.store.List(ctx, sqlstore.ListQuery{Start: lo, End: hi, Limit: limit, KeysOnly: !needValue})
		if err != nil {
			return err
		}
		page, err := r.resolve(ctx, rows, rev, needValue)
		if err != nil {
			return err
		}
		for i := range page {
			if page[i].rec != nil && !emit(page[i].rec, page[i].newest) {
				return nil
			}
		}
		if !more || len(rows) == 0 {
			return nil
		}
		lo = append(rows[len(rows)-1].Key, 0) // the smallest key behind the last row
		limit = scanPage
	}
}

// resolved is one key's record at the read revision, nil if it has none.
type resolved struct {
	rec    *coder.Record
	newest bool
}

// resolve turns index rows into the records that rev sees. Keys changed behind
// rev are looked up again, all of a page in one or two statements.
func (r *reader) resolve(ctx context.Context, rows []sqlstore.ListRow, rev int64, needValue bool) ([]resolved, error) {
	page := make([]resolved, len(rows))
	var exact, floor []int // positions to look up by the previous revision, or by search
	keys := make([][]byte, len(rows))
	prevs := make([]int64, len(rows))
	for i, row := range rows {
		x, err := coder.DecodeIndex(row.Index)
		if err != nil {
			return nil, err
		}
		if keys[i], err = coder.DecodeIndexKey(row.Key); err != nil {
			return nil, err
		}
		switch {
		case x.ModRevision <= rev:
			page[i].newest = true
			if x.Tombstone || !needValue {
				page[i].rec = x.Record(keys[i])
				break
			}
			if row.Version == nil {
				return nil, fmt.Errorf("backend: the version row of %q at revision %d is missing", keys[i], x.ModRevision)
			}
			if page[i].rec, err = coder.DecodeVersion(keys[i], x.ModRevision, row.Version); err != nil {
				return nil, err
			}
		case x.Gap || x.PrevRevision > rev:
			floor = append(floor, i)
		case x.PrevRevision > 0:
			exact = append(exact, i)
			prevs[i] = x.PrevRevision
		}
	}
	if err := r.lookupExact(ctx, page, exact, keys, prevs); err != nil {
		return nil, err
	}
	return page, r.lookupFloor(ctx, page, floor, keys, rev)
}

func (r *reader) lookupExact(ctx context.Context, page []resolved, at []int, keys [][]byte, revs []int64) error {
	if len(at) == 0 {
		return nil
	}
	internal := make([][]byte, len(at))
	for n, i := range at {
		internal[n] = coder.EncodeVersionKey(keys[i], revs[i])
	}
	values, err := r.store.MultiGet(ctx, internal)
	if err != nil {
		return err
	}
	for n, i := range at {
		if values[n] == nil {
			continue // a tombstone that compaction removed
		}
		if page[i].rec, err = coder.DecodeVersion(keys[i], revs[i], values[n]); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) lookupFloor(ctx context.Context, page []resolved, at []int, keys [][]byte, rev int64) error {
	if len(at) == 0 {
		return nil
	}
	ranges := make([]sqlstore.Partition, len(at))
	for n, i := range at {
		ranges[n].Start, ranges[n].End = coder.VersionsUpTo(keys[i], rev)
	}
	rows, err := r.store.Floor(ctx, ranges)
	if err != nil {
		return err
	}
	for n, i := range at {
		if rows[n].Key == nil {
			continue // created behind rev
		}
		_, found, err := coder.DecodeVersionKey(rows[n].Key)
		if err != nil {
			return err
		}
		if page[i].rec, err = coder.DecodeVersion(keys[i], found, rows[n].Value); err != nil {
			return err
		}
	}
	return nil
}
