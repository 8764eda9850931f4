package memstore

import (
	"context"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Iter implements sqlstore.KvStorage.
func (s *Store) Iter(ctx context.Context, r sqlstore.Range) sqlstore.Iter {
	r.Start, r.End = own(r.Start), own(r.End)
	if r.PageBytes <= 0 {
		r.PageBytes = pageBytes
	}
	return &iter{store: s, ctx: ctx, rest: r, at: -1, limited: r.Limit > 0}
}

// iter holds one page and the range behind it.
type iter struct {
	store   *Store
	ctx     context.Context
	rest    sqlstore.Range // what is to be read yet; Limit counts down
	limited bool
	page    []sqlstore.Row
	at      int
	done    bool // nothing is left behind page
	err     error
}

func (it *iter) Next() bool {
	if it.err != nil {
		return false
	}
	if it.at++; it.at >= len(it.page) && !it.done {
		it.at, it.page = 0, nil
		it.read()
	}
	if it.at >= len(it.page) {
		it.at = len(it.page)
		return false
	}
	return true
}

func (it *iter) read() {
	t, err := it.store.snapshot(it.ctx)
	if err != nil {
		it.err, it.done = err, true
		return
	}
	size := 0
	it.done = true
	visit := func(row sqlstore.Row) bool {
		if len(it.page) == pageRows || size >= it.rest.PageBytes {
			it.done = false
			return false
		}
		if it.limited {
			if it.rest.Limit == 0 {
				return false
			}
			it.rest.Limit--
		}
		out := sqlstore.Row{Key: own(row.Key)}
		if !it.rest.KeysOnly {
			out.Value = own(row.Value)
		}
		size += len(out.Key) + len(out.Value)
		it.page = append(it.page, out)
		return true
	}
	if it.rest.Reverse {
		descend(t, it.rest.Start, it.rest.End, visit)
	} else {
		ascend(t, it.rest.Start, it.rest.End, visit)
	}
	if n := len(it.page); n > 0 {
		last := it.page[n-1].Key
		if it.rest.Reverse {
			it.rest.End = own(last)
		} else {
			it.rest.Start = append(own(last), 0)
		}
	}
}

func (it *iter) row() sqlstore.Row {
	if it.at < 0 || it.at >= len(it.page) {
		return sqlstore.Row{}
	}
	return it.page[it.at]
}

func (it *iter) Key() []byte   { return it.row().Key }
func (it *iter) Value() []byte { return it.row().Value }
func (it *iter) Err() error    { return it.err }

func (it *iter) Close() error {
	it.done, it.page, it.at = true, nil, 0
	return nil
}
