package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"slices"
	"strings"
)

// defaultListBytes is the bound of a List that names none.
const defaultListBytes = 4 << 20

// List implements Store.
func (s *DBStore) List(ctx context.Context, q ListQuery) (rows []ListRow, more bool, err error) {
	err = s.call(ctx, "list", func(ctx context.Context) error {
		if bytes.Compare(q.Start, q.End) >= 0 {
			return nil
		}
		rows, more, err = s.listPage(ctx, q)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return rows, more, nil
}

func (s *DBStore) listPage(ctx context.Context, q ListQuery) (rows []ListRow, more bool, err error) {
	maxBytes, text, limit := q.MaxBytes, s.texts.list, 0
	if maxBytes <= 0 {
		maxBytes = defaultListBytes
	}
	if q.KeysOnly {
		text, limit = s.texts.listKeys, maxPageRows
	} else {
		limit = s.list.rows(maxBytes)
	}
	if q.Limit > 0 && q.Limit < limit {
		limit = q.Limit + 1 // one more, to know whether there are any
	}
	size := 0
	err = s.read(ctx, func(db querier) error {
		rows, size, more = nil, 0, false
		return s.page(ctx, db, text, []any{notNil(q.Start), notNil(q.End), limit}, limit, func(r *sql.Rows) (int, bool, error) {
			if q.Limit > 0 && len(rows) == q.Limit {
				more = true
				return 0, false, nil
			}
			var row ListRow
			dest := []any{&row.Key, &row.Index, &row.Version}
			if q.KeysOnly {
				dest = dest[:2]
			}
			if err := r.Scan(dest...); err != nil {
				return 0, false, err
			}
			rows = append(rows, row)
			n := len(row.Key) + len(row.Index) + len(row.Version)
			size += n
			return n, size < maxBytes, nil
		})
	})
	if err != nil {
		return nil, false, err
	}
	if !q.KeysOnly {
		s.list.learn(len(rows), size)
	}
	return rows, more || size >= maxBytes || len(rows) == limit, nil
}

// Count implements Store.
func (s *DBStore) Count(ctx context.Context, start, end []byte, rev int64) (live, newer int64, err error) {
	at := binary.BigEndian.AppendUint64(nil, uint64(max(rev, 0)))
	err = s.call(ctx, "count", func(ctx context.Context) error {
		return s.read(ctx, func(q querier) error {
			return query(ctx, q, s.texts.count, []any{at, at, notNil(start), notNil(end)}, func(r *sql.Rows) (bool, error) {
				return false, r.Scan(&live, &newer)
			})
		})
	})
	if err != nil {
		return 0, 0, err
	}
	return live, newer, nil
}

const skipText = "SELECT internal_key FROM object WHERE internal_key >= ? AND internal_key < ? ORDER BY internal_key LIMIT 1 OFFSET ?"

// Skip implements Store.
func (s *DBStore) Skip(ctx context.Context, start, end []byte, n int) (key []byte, err error) {
	err = s.call(ctx, "skip", func(ctx context.Context) error {
		return s.read(ctx, func(q querier) error {
			key = nil
			return query(ctx, q, skipText, []any{notNil(start), notNil(end), n}, func(r *sql.Rows) (bool, error) {
				return false, r.Scan(&key)
			})
		})
	})
	if err != nil {
		return nil, err
	}
	return key, nil
}

// floorRanges bounds the ranges of one statement of Floor.
const floorRanges = 64

// Floor implements Store.
func (s *DBStore) Floor(ctx context.Context, ranges []Partition) ([]Row, error) {
	rows := make([]Row, len(ranges))
	err := s.call(ctx, "floor", func(ctx context.Context) error {
		return s.read(ctx, func(q querier) error {
			clear(rows)
			first := 0
			for chunk := range slices.Chunk(ranges, floorRanges) {
				if err := floorChunk(ctx, q, s.texts.floor, chunk, rows[first:]); err != nil {
					return err
				}
				first += len(chunk)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// floorChunk repeats the statement one for each range. It is padded like an IN
// list, with ranges that are empty.
func floorChunk(ctx context.Context, q querier, one string, ranges []Partition, rows []Row) error {
	n := padded(len(ranges))
	args := make([]any, 0, 3*n)
	for i := range n {
		if i < len(ranges) {
			args = append(args, i, notNil(ranges[i].Start), notNil(ranges[i].End))
		} else {
			args = append(args, i, []byte{}, []byte{})
		}
	}
	return query(ctx, q, one+strings.Repeat(" UNION ALL "+one, n-1), args, func(r *sql.Rows) (bool, error) {
		var i int
		var row Row
		if err := r.Scan(&i, &row.Key, &row.Value); err != nil {
			return false, err
		}
		rows[i] = Row{Key: notNil(row.Key), Value: notNil(row.Value)}
		return true, nil
	})
}
