package storetest

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// testBytes compares Lengths and Measure with the rows. Bytes count, not characters.
func testBytes(t *testing.T, s sqlstore.Store) {
	ctx := context.Background()
	rows := []sqlstore.Row{
		{Key: []byte("a"), Value: []byte{}},
		{Key: []byte("b\x00"), Value: []byte("\x00\x00")},
		{Key: []byte("c\xc3\xa9"), Value: []byte("d\xc3\xa9\xff")},
		{Key: []byte("e"), Value: make([]byte, 1<<20)},
	}
	commit(t, s, func(b sqlstore.BatchWrite) {
		for _, r := range rows {
			b.Put(r.Key, r.Value)
		}
	})
	lengths, err := s.Lengths(ctx, [][]byte{rows[3].Key, []byte("missing"), rows[0].Key, rows[2].Key, rows[3].Key,
		rows[1].Key})
	require.NoError(t, err)
	require.Equal(t, []int{1 << 20, -1, 0, 4, 1 << 20, 2}, lengths)
	lengths, err = s.Lengths(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, lengths)

	also := [2][]byte{[]byte("missing"), rows[2].Key}
	for from := range len(rows) + 1 {
		for to := from; to <= len(rows); to++ {
			for limit := range len(rows) + 2 {
				q := sqlstore.MeasureQuery{Start: []byte("z"), End: []byte("z"), Limit: limit, Also: also}
				if from < len(rows) {
					q.Start = rows[from].Key
				}
				if to < len(rows) {
					q.End = rows[to].Key
				}
				want := sqlstore.Measured{Also: [2][]byte{nil, rows[2].Value}}
				for i := from; i < to && (limit == 0 || i < from+limit); i++ {
					want.Bytes += int64(len(rows[i].Key) + len(rows[i].Value))
					want.Rows++
					want.Last = bytes.Clone(rows[i].Key)
				}
				got, err := s.Measure(ctx, q)
				require.NoError(t, err)
				require.Equal(t, want, got, "%+v", q)
			}
		}
	}
}
