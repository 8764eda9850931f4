package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"slices"
)

const (
	defaultPageBytes = 1 << 20
	minPageRows      = 16
	maxPageRows      = 8192
)

// Iter implements KvStorage. It reads pages of about r.PageBytes bytes by key,
// and holds no connection between them.
func (s *DBStore) Iter(ctx context.Context, r Range) Iter {
	r.Start, r.End = slices.Clone(r.Start), slices.Clone(r.End)
	if r.PageBytes <= 0 {
		r.PageBytes = defaultPageBytes
	}
	return &pageIter{store: s, ctx: ctx, rest: r, limited: r.Limit > 0, rows: newSizer(4 << 10), at: -1}
}

type pageIter struct {
	store   *DBStore
	ctx     context.Context
	rest    Range // what is to be read yet; Limit counts down
	limited bool
	rows    *sizer // bytes of a row of this range
	page    []Row
	at      int
	done    bool // nothing is left behind page
	err     error
}

func (it *pageIter) Next() bool {
	if it.err != nil {
		return false
	}
	if it.at++; it.at >= len(it.page) && !it.done {
		it.at, it.page = 0, nil
		if it.err = it.read(); it.err != nil {
			it.page, it.done = nil, true
		}
	}
	if it.at >= len(it.page) {
		it.at = len(it.page)
		return false
	}
	return true
}

func (it *pageIter) read() error {
	r := &it.rest
	return it.store.call(it.ctx, "iter", func(ctx context.Context) error {
		if bytes.Compare(r.Start, r.End) >= 0 || it.limited && r.Limit == 0 {
			it.done = true
			return nil
		}
		limit := it.rows.rows(r.PageBytes)
		if it.limited {
			limit = min(limit, r.Limit)
		}
		var size int
		err := it.store.read(ctx, func(q querier) error {
			it.page, size = nil, 0
			return it.store.page(ctx, q, iterText(*r), []any{notNil(r.Start), notNil(r.End), limit}, limit, func(rows *sql.Rows) (int, bool, error) {
				var row Row
				dest := []any{&row.Key, &row.Value}
				if r.KeysOnly {
					dest = dest[:1]
				}
				if err := rows.Scan(dest...); err != nil {
					return 0, false, err
				}
				row.Key = notNil(row.Key)
				if !r.KeysOnly {
					row.Value = notNil(row.Value)
				}
				it.page = append(it.page, row)
				n := len(row.Key) + len(row.Value)
				size += n
				return n, size < r.PageBytes, nil
			})
		})
		if err != nil {
			return err
		}
		n := len(it.page)
		it.done = n < limit && size < r.PageBytes
		if n == 0 {
			return nil
		}
		it.rows.learn(n, size)
		if it.limited {
			r.Limit -= n
		}
		if last := it.page[n-1].Key; r.Reverse {
			r.End = bytes.Clone(last)
		} else {
			r.Start = append(bytes.Clone(last), 0)
		}
		return nil
	})
}

func iterText(r Range) string {
	columns, order := "internal_key, object_value", "ASC"
	if r.KeysOnly {
		columns = "internal_key"
	}
	if r.Reverse {
		order = "DESC"
	}
	return "SELECT " + columns + " FROM object WHERE internal_key >= ? AND internal_key < ? ORDER BY internal_key " + order + " LIMIT ?"
}

func (it *pageIter) row() Row {
	if it.at < 0 || it.at >= len(it.page) {
		return Row{}
	}
	return it.page[it.at]
}

func (it *pageIter) Key() []byte   { return it.row().Key }
func (it *pageIter) Value() []byte { return it.row().Value }
func (it *pageIter) Err() error    { return it.err }

func (it *pageIter) Close() error {
	it.done, it.page, it.at = true, nil, 0
	return nil
}
