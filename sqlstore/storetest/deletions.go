package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// testDeletions deletes more keys of clients than any engine deletes one by one, as a range delete does.
func testDeletions(t *testing.T, s sqlstore.Store) {
	const n, rev = 2500, 9
	raw := func(i int) []byte { return fmt.Appendf(nil, "/%%key$%05d", i) }
	live := func(i int) coder.Index {
		return coder.Index{ModRevision: 3 + int64(i%5), PrevRevision: 2, CreateRevision: 2, Version: 2, Lease: int64(i % 2)}
	}
	tombstone := func(i int) coder.Index {
		return coder.Index{ModRevision: rev, PrevRevision: live(i).ModRevision, Tombstone: true}
	}
	fill := func(b sqlstore.BatchWrite) {
		for i := range n {
			b.CAS(coder.EncodeIndexKey(raw(i)), coder.EncodeIndex(tombstone(i)), coder.EncodeIndex(live(i)))
		}
		for i := range n {
			b.PutIfNotExist(coder.EncodeVersionKey(raw(i), rev),
				coder.EncodeVersion(&coder.Record{Tombstone: true, Sub: int32(i)}))
		}
	}
	between := coder.EncodeIndexKey(append(raw(n/2), '-'))
	middle, last := coder.EncodeIndexKey(raw(n/2)), coder.EncodeIndexKey(raw(n-1))
	version := coder.EncodeVersionKey(raw(n-1), rev)
	gap := live(0)
	gap.Gap = true
	for _, c := range []struct {
		name     string
		change   func(sqlstore.BatchWrite) // of what the batch expects
		conflict []byte                    // the row that is not as expected
	}{
		{"as expected", func(sqlstore.BatchWrite) {}, nil},
		{"a live key between them", func(b sqlstore.BatchWrite) { b.Put(between, coder.EncodeIndex(live(0))) }, nil},
		{"a live key with a gap between them", func(b sqlstore.BatchWrite) { b.Put(between, coder.EncodeIndex(gap)) }, nil},
		{"a tombstone between them", func(b sqlstore.BatchWrite) { b.Put(between, coder.EncodeIndex(tombstone(0))) }, nil},
		{"another version", func(b sqlstore.BatchWrite) {
			b.Put(middle, coder.EncodeIndex(coder.Index{ModRevision: 8, PrevRevision: 2, Version: 3}))
		}, middle},
		{"a deleted key", func(b sqlstore.BatchWrite) {
			b.Put(middle, coder.EncodeIndex(coder.Index{ModRevision: 8, PrevRevision: 2, Tombstone: true}))
		}, middle},
		{"a missing key", func(b sqlstore.BatchWrite) { b.Del(middle) }, middle},
		{"the last key is missing", func(b sqlstore.BatchWrite) { b.Del(last) }, last},
		{"another key instead", func(b sqlstore.BatchWrite) {
			b.Del(middle)
			b.Put(between, coder.EncodeIndex(live(n/2)))
		}, middle},
		{"the version row exists", func(b sqlstore.BatchWrite) {
			b.Put(version, []byte("there"))
		}, version},
	} {
		commit(t, s, func(b sqlstore.BatchWrite) {
			for _, row := range all(t, s, whole()) {
				b.Del(row.Key)
			}
		})
		commit(t, s, func(b sqlstore.BatchWrite) {
			for i := range n {
				b.Put(coder.EncodeIndexKey(raw(i)), coder.EncodeIndex(live(i)))
			}
		})
		commit(t, s, func(b sqlstore.BatchWrite) { b.Put([]byte("other"), nil); c.change(b) })
		before := all(t, s, whole())
		err := tryCommit(s, fill)
		if c.conflict != nil {
			var conflict *sqlstore.Conflict
			require.ErrorAs(t, err, &conflict, c.name)
			if conflict.Key != nil {
				require.Equal(t, c.conflict, conflict.Key, c.name)
			}
			sameRows(t, c.name, all(t, s, whole()), before)
			continue
		}
		require.NoError(t, err, c.name)
		want := map[string][]byte{}
		for _, row := range before {
			want[string(row.Key)] = row.Value
		}
		for i := range n {
			want[string(coder.EncodeIndexKey(raw(i)))] = coder.EncodeIndex(tombstone(i))
			want[string(coder.EncodeVersionKey(raw(i), rev))] = coder.EncodeVersion(&coder.Record{Tombstone: true, Sub: int32(i)})
		}
		rows := all(t, s, whole())
		require.Len(t, rows, len(want), c.name)
		for _, row := range rows {
			require.Equal(t, want[string(row.Key)], row.Value, "%s: %x", c.name, row.Key)
		}
	}
}
