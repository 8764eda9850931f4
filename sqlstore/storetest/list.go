package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// put adds to b what writing raw at rev does: a version row, and the index row,
// which it returns. old is the index row it replaces, nil if there is none.
func put(b sqlstore.BatchWrite, raw []byte, rev int64, old, value []byte, tombstone bool) (index []byte) {
	r := &coder.Record{Key: raw, Value: value, CreateRevision: 1, ModRevision: rev, Version: 1, Tombstone: tombstone}
	b.PutIfNotExist(coder.EncodeVersionKey(raw, rev), coder.EncodeVersion(r))
	if old == nil {
		index = coder.EncodeIndex(indexOf(r, 0))
		b.PutIfNotExist(coder.EncodeIndexKey(raw), index)
		return index
	}
	prev, _, _ := coder.RowVersions(old)
	index = coder.EncodeIndex(indexOf(r, prev))
	b.CAS(coder.EncodeIndexKey(raw), index, old)
	return index
}

func allIndexRows() (lo, hi []byte) { return coder.IndexBounds([]byte{0}, []byte{0}) }

func testListPages(t *testing.T, s sqlstore.Store) {
	ctx := context.Background()
	keys := keysOfAllBytes()
	// The longest ones do not fit once encoded.
	keys = slices.DeleteFunc(keys, func(key []byte) bool { return coder.CheckKey(key) != nil })
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i, key := range keys {
			put(b, key, int64(1000+i), nil, bytes.Repeat([]byte{byte(i)}, i%300), i%10 == 9)
			// Older versions, which a list must step over.
			b.PutIfNotExist(coder.EncodeVersionKey(key, 5), []byte("old"))
		}
	})
	lo, hi := allIndexRows()
	for _, q := range []sqlstore.ListQuery{
		{}, {Limit: 1}, {Limit: 100}, {Limit: 5000}, {MaxBytes: 1}, {MaxBytes: 5000}, {MaxBytes: 3000, Limit: 17},
		{KeysOnly: true}, {KeysOnly: true, Limit: 333},
	} {
		q.Start, q.End = lo, hi
		var got []sqlstore.ListRow
		for more := true; more; {
			rows, m, err := s.List(ctx, q)
			require.NoError(t, err)
			require.False(t, q.Limit > 0 && len(rows) > q.Limit, "%d rows at limit %d", len(rows), q.Limit)
			require.False(t, m && len(rows) == 0, "more, but no rows")
			if size := listBytes(rows); q.MaxBytes > 0 && len(rows) > 1 && size-listBytes(rows[len(rows)-1:]) > q.MaxBytes {
				t.Fatalf("%d bytes, at most about %d were asked for", size, q.MaxBytes)
			}
			got, more = append(got, rows...), m
			if n := len(rows); n > 0 {
				raw, err := coder.DecodeIndexKey(rows[n-1].Key)
				require.NoError(t, err)
				q.Start, _ = coder.IndexBounds(coder.KeyAfter(raw), []byte{0})
			}
			if q.MaxBytes == 1 && len(got) > 30 {
				break // a row a call
			}
		}
		if q.MaxBytes != 1 {
			require.Len(t, got, len(keys), "limit %d, max bytes %d", q.Limit, q.MaxBytes)
		}
		for i, row := range got {
			r := &coder.Record{Key: keys[i], Value: bytes.Repeat([]byte{byte(i)}, i%300), CreateRevision: 1,
				ModRevision: int64(1000 + i), Version: 1, Tombstone: i%10 == 9}
			version := coder.EncodeVersion(r)
			if q.KeysOnly {
				version = nil
			}
			require.Equal(t, sqlstore.ListRow{Key: coder.EncodeIndexKey(keys[i]), Index: coder.EncodeIndex(indexOf(r, 0)),
				Version: version}, row, "row %d", i)
		}
	}
	for _, bounds := range [][2][]byte{{hi, lo}, {lo, lo}} {
		rows, more, err := s.List(ctx, sqlstore.ListQuery{Start: bounds[0], End: bounds[1]})
		require.NoError(t, err)
		require.False(t, more || len(rows) > 0, "an empty range")
	}
}

func listBytes(rows []sqlstore.ListRow) (n int) {
	for _, row := range rows {
		n += len(row.Key) + len(row.Index) + len(row.Version)
	}
	return n
}

func testListMissingVersion(t *testing.T, s sqlstore.Store) {
	commit(t, s, func(b sqlstore.BatchWrite) {
		put(b, []byte("a"), 10, nil, []byte("1"), false)
		put(b, []byte("b"), 11, nil, []byte("2"), false)
		put(b, []byte("c"), 12, nil, []byte{}, false)
	})
	commit(t, s, func(b sqlstore.BatchWrite) { b.Del(coder.EncodeVersionKey([]byte("b"), 11)) })
	lo, hi := allIndexRows()
	rows, more, err := s.List(context.Background(), sqlstore.ListQuery{Start: lo, End: hi})
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, rows, 3)
	for i, row := range rows {
		require.Equal(t, i == 1, row.Version == nil, "row %d", i)
	}
}

func testLookup(t *testing.T, s sqlstore.Store) {
	ctx := context.Background()
	const n = 1200 // more than fit one statement
	raw := func(i int) []byte { return fmt.Appendf(nil, "%04d", i) }
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range n {
			put(b, raw(i), int64(10+i), nil, bytes.Repeat([]byte{byte(i)}, i%50), i%10 == 9)
			b.PutIfNotExist(coder.EncodeVersionKey(raw(i), 5), []byte("old"))
		}
	})
	commit(t, s, func(b sqlstore.BatchWrite) { b.Del(coder.EncodeVersionKey(raw(3), 13)) })
	rnd := rand.New(rand.NewPCG(5, 5))
	for _, size := range []int{0, 1, 2, 17, 500, 501, n} {
		keys, want := make([][]byte, size), make([]sqlstore.ListRow, size)
		for i := range keys {
			k := rnd.IntN(n + 100) // with repetitions, and keys that do not exist
			if i == 1 {
				k = 3
			}
			if keys[i] = coder.EncodeIndexKey(raw(k)); k >= n {
				continue
			}
			r := &coder.Record{Key: raw(k), Value: bytes.Repeat([]byte{byte(k)}, k%50), CreateRevision: 1,
				ModRevision: int64(10 + k), Version: 1, Tombstone: k%10 == 9}
			want[i] = sqlstore.ListRow{Key: keys[i], Index: coder.EncodeIndex(indexOf(r, 0)), Version: coder.EncodeVersion(r)}
			if k == 3 {
				want[i].Version = nil
			}
		}
		rows, _, err := s.Lookup(ctx, keys, 0)
		require.NoError(t, err)
		require.Equal(t, want, rows)
		for i := range rows { // no two share a slice
			clear(rows[i].Key)
			clear(rows[i].Index)
			clear(rows[i].Version)
		}
		for i, row := range rows {
			for _, b := range [][]byte{row.Key, row.Index, row.Version} {
				require.Equal(t, make([]byte, len(b)), append([]byte{}, b...), "row %d", i)
			}
		}
		again, _, err := s.Lookup(ctx, keys, 0)
		require.NoError(t, err)
		require.Equal(t, want, again)
	}
}

// testLookupIsBounded: what does not fit is read by the next calls, of which each reads something.
func testLookupIsBounded(t *testing.T, s sqlstore.Store) {
	const n, size = 20, 1000
	keys := make([][]byte, n+1)
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range n {
			raw := fmt.Appendf(nil, "%04d", i)
			put(b, raw, int64(10+i), nil, make([]byte, size), false)
			keys[i] = coder.EncodeIndexKey(raw)
		}
	})
	keys[n] = coder.EncodeIndexKey([]byte("missing"))
	for _, maxBytes := range []int{1, 3*size + 1, n * 2 * size} {
		found, more := 0, true
		for left := keys; more; {
			rows, again, err := s.Lookup(context.Background(), left, maxBytes)
			require.NoError(t, err)
			var unread [][]byte
			for i, row := range rows {
				if row.Key == nil {
					unread = append(unread, left[i])
				}
			}
			require.Less(t, len(unread), len(left), "nothing was read")
			require.LessOrEqual(t, (len(left)-len(unread)-1)*size, maxBytes)
			found += len(left) - len(unread)
			more, left = again && len(unread) > 1, unread
		}
		require.Equal(t, n, found)
	}
}

func testLookupSnapshot(t *testing.T, s sqlstore.Store) {
	for _, n := range []int{2, 700} {
		key := func(i int) []byte { return fmt.Appendf(nil, "/%d/%04d", n, i) }
		var first, last []byte
		keys := make([][]byte, n)
		commit(t, s, func(b sqlstore.BatchWrite) {
			for i := range n {
				keys[i] = coder.EncodeIndexKey(key(i))
				last = put(b, key(i), 1, nil, []byte("x"), false)
			}
			first = last
		})
		whileWriting(t, s, 100, func(b sqlstore.BatchWrite, i int) {
			first = put(b, key(0), int64(i+1), first, []byte("x"), false)
			last = put(b, key(n-1), int64(i+1), last, []byte("x"), false)
			for _, k := range [][]byte{key(0), key(n - 1)} { // as compaction does
				b.Del(coder.EncodeVersionKey(k, int64(i)))
			}
		}, func() error {
			rows, _, err := s.Lookup(context.Background(), keys, 0)
			switch {
			case err != nil:
				return err
			case !bytes.Equal(rows[0].Index, rows[n-1].Index):
				return fmt.Errorf("one Lookup saw index rows %x and %x that always change together", rows[0].Index, rows[n-1].Index)
			case rows[0].Version == nil || rows[n-1].Version == nil:
				return errors.New("one Lookup saw an index row without its version row")
			}
			return nil
		})
	}
}

func testListSnapshot(t *testing.T, s sqlstore.Store) {
	const n = 300
	key := func(i int) []byte { return fmt.Appendf(nil, "/k/%04d", i) }
	var first, last []byte
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range n {
			last = put(b, key(i), 1, nil, []byte("x"), false)
		}
		first = last
	})
	lo, hi := allIndexRows()
	whileWriting(t, s, 100, func(b sqlstore.BatchWrite, i int) {
		first = put(b, key(0), int64(i+1), first, []byte("x"), false)
		last = put(b, key(n-1), int64(i+1), last, []byte("x"), false)
	}, func() error {
		rows, _, err := s.List(context.Background(), sqlstore.ListQuery{Start: lo, End: hi})
		if err != nil {
			return err
		}
		if len(rows) != n {
			return fmt.Errorf("%d rows, want %d", len(rows), n)
		}
		if !bytes.Equal(rows[0].Index, rows[n-1].Index) {
			return fmt.Errorf("one List saw index rows %x and %x that always change together", rows[0].Index, rows[n-1].Index)
		}
		if rows[0].Version == nil || rows[n-1].Version == nil {
			return errors.New("one List saw an index row without its version row")
		}
		return nil
	})
}

func testCount(t *testing.T, s sqlstore.Store) {
	const n = 700
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range n {
			put(b, fmt.Appendf(nil, "%04d", i), int64(10+i), nil, nil, i%7 == 0)
		}
	})
	for _, c := range []struct{ from, to, rev int }{
		{0, n, 10 + n}, {0, n, 0}, {0, n, 10}, {0, n, 9}, {100, 200, 150}, {0, n, 300}, {5, 5, 300}, {9, 3, 300},
	} {
		var live, newer int64
		for i := c.from; i < c.to; i++ {
			switch {
			case 10+i > c.rev:
				newer++
			case i%7 != 0:
				live++
			}
		}
		lo, hi := coder.IndexBounds(fmt.Appendf(nil, "%04d", c.from), fmt.Appendf(nil, "%04d", c.to))
		gotLive, gotNewer, err := s.Count(context.Background(), lo, hi, int64(c.rev))
		require.NoError(t, err)
		require.Equal(t, []int64{live, newer}, []int64{gotLive, gotNewer}, "Count of [%d, %d) at %d", c.from, c.to, c.rev)
	}
	// Revisions are compared as numbers, up to the largest.
	const huge = int64(1)<<62 + 3
	commit(t, s, func(b sqlstore.BatchWrite) { put(b, []byte("x"), huge, nil, nil, false) })
	lo, hi := coder.IndexBounds([]byte("x"), nil)
	for rev, want := range map[int64][2]int64{huge - 1: {0, 1}, huge: {1, 0}, huge + 1: {1, 0}} {
		live, newer, err := s.Count(context.Background(), lo, hi, rev)
		require.NoError(t, err)
		require.Equal(t, want, [2]int64{live, newer}, "Count at %d", rev)
	}
}

func testSeekNth(t *testing.T, s sqlstore.Store) {
	const n = 300
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range n {
			put(b, fmt.Appendf(nil, "%04d", i), int64(10+i), nil, nil, i%7 == 0)
		}
	})
	for _, c := range []struct{ from, to, skip, want int }{
		{0, n, 0, 0}, {0, n, 1, 1}, {0, n, n - 1, n - 1}, {0, n, n, -1}, {100, 200, 50, 150}, {100, 200, 99, 199},
		{100, 200, 100, -1}, {5, 5, 0, -1}, {9, 3, 0, -1},
	} {
		lo, hi := coder.IndexBounds(fmt.Appendf(nil, "%04d", c.from), fmt.Appendf(nil, "%04d", c.to))
		var want []byte
		if c.want >= 0 {
			want = coder.EncodeIndexKey(fmt.Appendf(nil, "%04d", c.want))
		}
		got, err := s.SeekNth(context.Background(), lo, hi, c.skip)
		require.NoError(t, err)
		require.Equal(t, want, got, "SeekNth %d of [%d, %d)", c.skip, c.from, c.to)
	}
}

func testLatestAtOrBefore(t *testing.T, s sqlstore.Store) {
	const n = 250 // more than fit one statement
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range n {
			for rev := int64(10); rev <= 30; rev += 10 {
				b.PutIfNotExist(coder.EncodeVersionKey(fmt.Appendf(nil, "%04d", i), rev), fmt.Appendf(nil, "%d at %d", i, rev))
			}
		}
	})
	var ranges []sqlstore.Partition
	var want []sqlstore.Row
	for i := range n {
		raw := fmt.Appendf(nil, "%04d", i)
		rev := int64(i % 40)
		lo, hi := coder.VersionsUpTo(raw, rev)
		ranges = append(ranges, sqlstore.Partition{Start: lo, End: hi})
		row := sqlstore.Row{}
		if found := rev / 10 * 10; found > 0 {
			row = sqlstore.Row{Key: coder.EncodeVersionKey(raw, found), Value: fmt.Appendf(nil, "%d at %d", i, found)}
		}
		want = append(want, row)
	}
	// Inverted and empty ranges, and one range twice.
	ranges = append(ranges, sqlstore.Partition{Start: []byte("b"), End: []byte("a")},
		sqlstore.Partition{Start: []byte("a"), End: []byte("a")}, ranges[15])
	want = append(want, sqlstore.Row{}, sqlstore.Row{}, want[15])
	for _, from := range []int{0, n - 1, n, len(ranges)} {
		got, err := s.LatestAtOrBefore(context.Background(), ranges[from:])
		require.NoError(t, err)
		sameRows(t, fmt.Sprintf("LatestAtOrBefore of ranges from %d", from), got, want[from:])
	}
}
