package sqldb

import (
	"bytes"
	"context"
	"database/sql"
	"iter"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

const (
	defaultPageBytes = 1 << 20
	minPageRows      = 16
	maxPageRows      = 8192
)

// Iter implements sqlstore.KvStorage. A page has about r.PageBytes bytes.
func (s *Store) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	if r.PageBytes <= 0 {
		r.PageBytes = defaultPageBytes
	}
	sizes := newSizer(4 << 10)
	return sqlstore.Pages(r, func(r sqlstore.Range) (page []sqlstore.Row, more bool, err error) {
		err = s.call(ctx, "iter", func(ctx context.Context) error {
			if bytes.Compare(r.Start, r.End) >= 0 {
				return nil
			}
			page, more, err = s.iterPage(ctx, r, sizes)
			return err
		})
		return page, more, err
	})
}

func (s *Store) iterPage(ctx context.Context, r sqlstore.Range,
	sizes *sizer) (page []sqlstore.Row, more bool, err error) {
	limit := sizes.rows(r.PageBytes)
	if r.Limit > 0 {
		limit = min(limit, r.Limit)
	}
	size := 0
	err = s.read(ctx, func(q Querier) error {
		page, size = nil, 0
		return s.page(ctx, q, IterText(r), []any{NotNil(r.Start), NotNil(r.End), limit}, limit,
			func(rows *sql.Rows) (int, bool, error) {
				var row sqlstore.Row
				dest := []any{&row.Key, &row.Value}
				if r.KeysOnly {
					dest = dest[:1]
				}
				if err := rows.Scan(dest...); err != nil {
					return 0, false, err
				}
				row.Key = NotNil(row.Key)
				if !r.KeysOnly {
					row.Value = NotNil(row.Value)
				}
				page = append(page, row)
				n := len(row.Key) + len(row.Value)
				size += n
				return n, size < r.PageBytes, nil
			})
	})
	sizes.learn(len(page), size) // as in listPage
	if err != nil {
		return nil, false, err
	}
	return page, len(page) == limit || size >= r.PageBytes, nil
}

// IterText returns the statement that reads a page of r. It takes two bounds and a limit.
func IterText(r sqlstore.Range) string {
	columns, order := "internal_key, object_value", "ASC"
	if r.KeysOnly {
		columns = "internal_key"
	}
	if r.Reverse {
		order = "DESC"
	}
	return "SELECT " + columns + " FROM object WHERE internal_key >= ? AND internal_key < ? ORDER BY internal_key " +
		order + " LIMIT ?"
}
