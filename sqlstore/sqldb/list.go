package sqldb

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// defaultListBytes is the bound of a List that names none.
const defaultListBytes = 4 << 20

// List implements sqlstore.Store.
func (s *Store) List(ctx context.Context, q sqlstore.ListQuery) (rows []sqlstore.ListRow, more bool, err error) {
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

func (s *Store) listPage(ctx context.Context, q sqlstore.ListQuery) (rows []sqlstore.ListRow, more bool, err error) {
	maxBytes, text, sizes := q.MaxBytes, s.statements.List, s.list
	if maxBytes <= 0 {
		maxBytes = defaultListBytes
	}
	if q.KeysOnly {
		text, sizes = s.statements.ListKeys, s.keys
	}
	limit := sizes.rows(maxBytes)
	if q.Limit > 0 && q.Limit < limit {
		limit = q.Limit + 1 // one more, to know whether there are any
	}
	size := 0
	err = s.read(ctx, func(db Querier) error {
		rows, size, more = nil, 0, false
		return s.page(ctx, db, text, []any{NotNil(q.Start), NotNil(q.End), limit}, limit,
			func(r *sql.Rows) (int, bool, error) {
				if q.Limit > 0 && len(rows) == q.Limit {
					more = true
					return 0, false, nil
				}
				var row sqlstore.ListRow
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
	sizes.learn(len(rows), size) // also if the deadline passed while the unneeded rows were read
	if err != nil {
		return nil, false, err
	}
	return rows, more || size >= maxBytes || len(rows) == limit, nil
}

// Count implements sqlstore.Store.
func (s *Store) Count(ctx context.Context, start, end []byte, rev int64) (live, newer int64, err error) {
	at := binary.BigEndian.AppendUint64(nil, uint64(max(rev, 0)))
	if _, err = s.readRow(ctx, "count", s.statements.Count, []any{at, at, NotNil(start), NotNil(end)}, &live,
		&newer); err != nil {
		return 0, 0, err
	}
	return live, newer, nil
}

// SeekNthText takes two bounds and a number of rows.
const SeekNthText = "SELECT internal_key FROM object WHERE internal_key >= ? AND internal_key < ? " +
	"ORDER BY internal_key LIMIT 1 OFFSET ?"

// SeekNth implements sqlstore.Store.
func (s *Store) SeekNth(ctx context.Context, start, end []byte, n int) (key []byte, err error) {
	found, err := s.readRow(ctx, "seek_nth", SeekNthText, []any{NotNil(start), NotNil(end), n}, &key)
	if !found {
		return nil, err
	}
	return key, nil
}

// latestRanges bounds the ranges of one statement of LatestAtOrBefore.
const latestRanges = 64

// LatestAtOrBefore implements sqlstore.Store.
func (s *Store) LatestAtOrBefore(ctx context.Context, ranges []sqlstore.Partition) ([]sqlstore.Row, error) {
	rows := make([]sqlstore.Row, len(ranges))
	err := s.call(ctx, "latest_at_or_before", func(ctx context.Context) error {
		return s.read(ctx, func(q Querier) error {
			clear(rows)
			first := 0
			for chunk := range slices.Chunk(ranges, latestRanges) {
				if err := latestChunk(ctx, q, s.statements.LatestAtOrBefore, chunk, rows[first:]); err != nil {
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

// latestChunk repeats the statement one for each range. Like an IN list it is padded, with
// empty ranges.
func latestChunk(ctx context.Context, q Querier, one string, ranges []sqlstore.Partition, rows []sqlstore.Row) error {
	n := padded(len(ranges))
	args := make([]any, 0, 3*n)
	for i := range n {
		if i < len(ranges) {
			args = append(args, i, NotNil(ranges[i].Start), NotNil(ranges[i].End))
		} else {
			args = append(args, i, []byte{}, []byte{})
		}
	}
	return EachRow(ctx, q, one+strings.Repeat(" UNION ALL "+one, n-1), args, func(r *sql.Rows) (bool, error) {
		var i int
		var row sqlstore.Row
		if err := r.Scan(&i, &row.Key, &row.Value); err != nil {
			return false, err
		}
		rows[i] = sqlstore.Row{Key: NotNil(row.Key), Value: NotNil(row.Value)}
		return true, nil
	})
}
