package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// fitsAnywhere is how many bytes a row may have on every engine as it comes; TiDB
// ends at 6 MiB.
const fitsAnywhere = 5 << 20

func testLargeValues(t *testing.T, s sqlstore.Store) {
	rnd := rand.New(rand.NewPCG(4, 4))
	values := map[string][]byte{
		"64k-1":  randomBytes(rnd, 1<<16-1),
		"64k":    randomBytes(rnd, 1<<16),
		"2M":     randomBytes(rnd, 2<<20),
		"zeros":  make([]byte, 2<<20),
		"quotes": bytes.Repeat([]byte("'\\"), 5<<20), // 10 MiB: twice that once escaped
	}
	for name, value := range values {
		err := tryCommit(s, func(b sqlstore.BatchWrite) { b.PutIfNotExist([]byte("alone "+name), value) })
		if len(value) > fitsAnywhere && errors.Is(err, sqlstore.ErrTooLarge) {
			mustHold(t, s, []byte("alone "+name), nil)
			continue
		}
		require.NoError(t, err, "Commit")
		commit(t, s, func(b sqlstore.BatchWrite) {
			b.Put([]byte("put "+name), value)
			b.Put([]byte("beside "+name), []byte("small"))
		})
		for _, key := range []string{"alone ", "put "} {
			mustHold(t, s, []byte(key+name), value)
		}
		next := append([]byte("x"), value[:len(value)-1]...)
		commit(t, s, func(b sqlstore.BatchWrite) { b.CAS([]byte("put "+name), next, value) })
		mustHold(t, s, []byte("put "+name), next)
		commit(t, s, func(b sqlstore.BatchWrite) { b.DelCurrent([]byte("put "+name), next) })
		mustHold(t, s, []byte("put "+name), nil)
	}
	raw := []byte("listed")
	commit(t, s, func(b sqlstore.BatchWrite) { put(b, raw, 5, nil, values["2M"], false) })
	lo, hi := coder.IndexBounds(raw, nil)
	rows, _, err := s.List(context.Background(), sqlstore.ListQuery{Start: lo, End: hi})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	record, err := coder.DecodeVersion(raw, 5, rows[0].Version)
	require.NoError(t, err)
	require.True(t, bytes.Equal(record.Value, values["2M"]), "a listed value of 2 MiB")
}

func testBigBatches(t *testing.T, s sqlstore.Store) {
	const n = 10_000 // more than any engine puts in one statement
	key := func(i int) []byte { return fmt.Appendf(nil, "%06d", i) }
	fill := func(b sqlstore.BatchWrite) {
		for i := range n {
			b.PutIfNotExist(key(i), fmt.Appendf(nil, "v%d", i))
		}
	}
	// Nothing at all is written if the last of them exists.
	commit(t, s, func(b sqlstore.BatchWrite) { b.Put(key(n-1), []byte("there")) })
	wantConflict(t, tryCommit(s, fill), key(n-1))
	sameRows(t, "after a conflict", all(t, s, whole()), []sqlstore.Row{{Key: key(n - 1), Value: []byte("there")}})
	commit(t, s, func(b sqlstore.BatchWrite) { b.Del(key(n - 1)) })
	commit(t, s, fill)
	rows := all(t, s, whole())
	require.Len(t, rows, n)
	require.Equal(t, fmt.Sprintf("v%d", n/2), string(rows[n/2].Value))
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range n {
			switch i % 4 {
			case 0:
				b.Del(key(i))
			case 1:
				b.DelCurrent(key(i), fmt.Appendf(nil, "v%d", i-i%8)) // fits none
			case 2:
				b.DelCurrent(key(i), fmt.Appendf(nil, "v%d", i))
			default:
				b.Put(key(i), []byte("put"))
			}
		}
	})
	rows = all(t, s, whole())
	require.Len(t, rows, n/2)
	for i, row := range rows {
		require.Equal(t, string(key(4*(i/2)+1+2*(i%2))), string(row.Key), "row %d", i)
		require.Equal(t, i%2 == 1, string(row.Value) == "put", "row %d", i)
	}
	commit(t, s, func(b sqlstore.BatchWrite) {
		for _, row := range rows {
			b.CAS(row.Key, []byte("swapped"), row.Value)
		}
	})

	// More bytes than one packet may have, of every kind of change.
	const big, size = 40, 1 << 20
	value := func(i int, c byte) []byte { return bytes.Repeat([]byte{c, byte(i)}, size/2) }
	bigKey := func(i int) []byte { return versionedKey(fmt.Sprintf("big%d", i)) }
	versionedValue := func(own, prev int64, i int, c byte) []byte {
		return append(versioned(own, prev, ""),
			value(i, c)...)
	}
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range big {
			b.PutIfNotExist(bigKey(i), versionedValue(1, 0, i, '\''))
		}
	})
	commit(t, s, func(b sqlstore.BatchWrite) {
		for i := range big {
			if i%2 == 0 {
				b.CAS(bigKey(i), versionedValue(2, 1, i, 0), versionedValue(1, 0, i, '\''))
			} else {
				b.CASOrPut(bigKey(i), versionedValue(2, 1, i, 0), versionedValue(1, 0, i, '\''))
			}
		}
	})
	for i := range big {
		mustHold(t, s, bigKey(i), versionedValue(2, 1, i, 0))
	}
	r := sqlstore.Range{Start: bigKey(0)[:4], End: whole().End}
	require.Len(t, all(t, s, r), big)
}

func testTooLarge(t *testing.T, s sqlstore.Store) {
	ok := []byte("fits")
	for name, row := range map[string]sqlstore.Row{
		"key":   {Key: bytes.Repeat([]byte("k"), coder.MaxInternalKey+1), Value: []byte("v")},
		"value": {Key: []byte("value"), Value: make([]byte, 1<<24)},
	} {
		for kind, add := range map[string]func(b sqlstore.BatchWrite){
			"PutIfNotExist": func(b sqlstore.BatchWrite) { b.PutIfNotExist(row.Key, row.Value) },
			"Put":           func(b sqlstore.BatchWrite) { b.Put(row.Key, row.Value) },
			"CAS":           func(b sqlstore.BatchWrite) { b.CAS(row.Key, row.Value, []byte("old")) },
		} {
			err := tryCommit(s, func(b sqlstore.BatchWrite) { b.Put(ok, []byte("x")); add(b) })
			require.ErrorIs(t, err, sqlstore.ErrTooLarge, "%s of too large a %s", kind, name)
			mustHold(t, s, ok, nil)
		}
	}
	commit(t, s, func(b sqlstore.BatchWrite) { b.Put(ok, []byte("x")) })
}
