package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func reversed(rows []sqlstore.Row) []sqlstore.Row {
	rows = slices.Clone(rows)
	slices.Reverse(rows)
	return rows
}

func testOrder(t *testing.T, s sqlstore.Store) {
	keys := keysOfAllBytes()
	var want []sqlstore.Row
	for i, key := range keys {
		want = append(want, sqlstore.Row{Key: key, Value: fmt.Appendf(nil, "value %d", i)})
	}
	shuffled := slices.Clone(want)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(shuffled), func(i, j int) {
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	})
	commit(t, s, func(b sqlstore.BatchWrite) {
		for _, row := range shuffled {
			b.PutIfNotExist(row.Key, row.Value)
		}
	})
	r := whole()
	sameRows(t, "ascending", all(t, s, r), want)
	r.Reverse = true
	sameRows(t, "descending", all(t, s, r), reversed(want))
	const next = 3 // rows on either side show whether a bound is in the right place
	for i := 0; i < len(want); i += 7 {
		mustHold(t, s, want[i].Key, want[i].Value)
		sameRows(t, "from here", all(t, s, sqlstore.Range{Start: want[i].Key, End: whole().End, Limit: next}),
			want[i:min(i+next, len(want))])
		sameRows(t, "up to here", all(t, s, sqlstore.Range{Start: []byte{}, End: want[i].Key, Limit: next, Reverse: true}),
			reversed(want[max(0, i-next):i]))
	}
	mustHold(t, s, []byte("aBC"), nil)
	mustHold(t, s, []byte("abc   "), nil)
}

func testBinaryValues(t *testing.T, s sqlstore.Store) {
	values := map[string][]byte{"all": awkward, "empty": {}, "zero": {0}, "quote": []byte("'"), "escape": []byte(`\`),
		"invalid utf-8": {0xc3, 0x28, 0xff}}
	for name, value := range values {
		commit(t, s, func(b sqlstore.BatchWrite) { b.PutIfNotExist([]byte("one "+name), value) })
	}
	commit(t, s, func(b sqlstore.BatchWrite) {
		for name, value := range values {
			b.Put([]byte("many "+name), value)
		}
	})
	for name, value := range values {
		mustHold(t, s, []byte("one "+name), value)
		mustHold(t, s, []byte("many "+name), value)
		swapped := append([]byte("swapped"), awkward...)
		commit(t, s, func(b sqlstore.BatchWrite) { b.CAS([]byte("one "+name), swapped, value) })
		mustHold(t, s, []byte("one "+name), swapped)
	}
	sameRows(t, "an empty value", all(t, s, sqlstore.Range{Start: []byte("many empty"), End: []byte("many empty\x00")}),
		[]sqlstore.Row{{Key: []byte("many empty"), Value: []byte{}}})
}

func testIterRanges(t *testing.T, s sqlstore.Store) {
	const n = 1000
	var rows []sqlstore.Row
	for i := range n {
		rows = append(rows, sqlstore.Row{Key: fmt.Appendf(nil, "key/%05d", 2*i), Value: bytes.Repeat([]byte{byte(i)}, i%97)})
	}
	commit(t, s, func(b sqlstore.BatchWrite) {
		for _, row := range rows {
			b.PutIfNotExist(row.Key, row.Value)
		}
	})
	rnd := rand.New(rand.NewPCG(2, 2))
	bounds := [][2]int{{0, 2 * n}, {10, 10}, {11, 12}, {10, 11}, {20, 10}, {1999, 2000}, {0, 1}}
	for range 12 {
		bounds = append(bounds, [2]int{rnd.IntN(2 * n), rnd.IntN(2 * n)})
	}
	for i, bound := range bounds {
		lo, hi := bound[0], bound[1]
		var in []sqlstore.Row
		if lo < hi {
			in = rows[(lo+1)/2 : (hi+1)/2]
		}
		for _, reverse := range []bool{false, true} {
			for _, limit := range []int{0, 1, 7, len(in), len(in) + 1} {
				for _, page := range []int{0, 1, 3000} {
					if page == 1 && len(in) > 60 {
						continue // a statement a row: covered by the short ranges
					}
					keysOnly := (i+limit+page)%3 == 0
					want := slices.Clone(in)
					if reverse {
						slices.Reverse(want)
					}
					if limit > 0 && limit < len(want) {
						want = want[:limit]
					}
					if keysOnly {
						for i := range want {
							want[i].Value = nil
						}
					}
					got := all(t, s, sqlstore.Range{
						Start: fmt.Appendf(nil, "key/%05d", lo), End: fmt.Appendf(nil, "key/%05d", hi),
						Reverse: reverse, Limit: limit, PageBytes: page, KeysOnly: keysOnly,
					})
					sameRows(t, fmt.Sprintf("[%d, %d) reverse %v limit %d page %d keys only %v", lo, hi, reverse, limit, page,
						keysOnly), got, want)
				}
			}
		}
	}
}

func testIterEnds(t *testing.T, s sqlstore.Store) {
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range 300 {
			b.Put(fmt.Appendf(nil, "%03d", i), []byte("v"))
		}
	})
	r := whole()
	r.PageBytes = 10
	rows := s.Iter(context.Background(), r)
	// More abandoned iterations than any pool has connections; each begins anew.
	for range 100 {
		var seen [][]byte
		for row, err := range rows {
			require.NoError(t, err)
			if seen = append(seen, row.Key); len(seen) == 2 {
				break
			}
		}
		require.Equal(t, [][]byte{[]byte("000"), []byte("001")}, seen)
	}
	r.Start = []byte("298")
	n := 0
	for row, err := range s.Iter(context.Background(), r) {
		require.NoError(t, err)
		n++
		row.Key[0] = 'x' // the next page does not depend on it
	}
	require.Equal(t, 2, n)
}

func testOwnership(t *testing.T, s sqlstore.Store) {
	spoil := func(b []byte) {
		for i := range b {
			b[i] = 'X'
		}
	}
	key, value, swapped, old, gone := []byte("key"), []byte("value"), []byte("value"), []byte("old"), []byte("gone")
	commit(t, s, func(b sqlstore.BatchWrite) { b.Put([]byte("cas"), []byte("old")); b.Put([]byte("gone"), []byte("old")) })
	b := s.BeginBatchWrite()
	cas := []byte("cas")
	b.Put(key, value)
	b.CAS(cas, swapped, old)
	b.Del(gone)
	require.NoError(t, b.Commit(context.Background()))
	for _, mine := range [][]byte{key, value, cas, swapped, old, gone} {
		spoil(mine) // what was committed is not made of it
	}
	for range 2 {
		want := []sqlstore.Row{{Key: []byte("cas"), Value: []byte("value")}, {Key: []byte("key"), Value: []byte("value")}}
		rows := all(t, s, whole())
		sameRows(t, "rows", rows, want)
		for _, row := range rows {
			spoil(row.Key)
			spoil(row.Value)
		}
		values, err := s.MultiGet(context.Background(), [][]byte{[]byte("cas"), []byte("cas")})
		require.NoError(t, err)
		require.Equal(t, [][]byte{[]byte("value"), []byte("value")}, values)
		spoil(values[0])
		require.Equal(t, "value", string(values[1]), "MultiGet hands one slice out twice")
		v, err := s.Get(context.Background(), []byte("cas"))
		require.NoError(t, err)
		spoil(v)
	}
}
