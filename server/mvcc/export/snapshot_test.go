package export

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// node is at revision 9. chosen is called when the revision of a snapshot is chosen.
type node struct{ chosen func() }

func (n node) ReadRevision(context.Context, auth.Permit, bool) (int64, error) {
	n.chosen()
	return 9, nil
}

func (node) Mark(context.Context) (int64, error) { return -1, nil }

func (node) Meta() Meta { return Meta{Term: 3} }

// A lease of a key is in the snapshot even if it has ended while the snapshot was opened,
// or was granted and ended. A lease without keys is in it only if it still exists.
func TestSnapshotHasTheLeasesOfItsKeys(t *testing.T) {
	store := memstore.New()
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	write := func(f func(sqlstore.BatchWrite)) {
		b := store.BeginBatchWrite()
		f(b)
		if err := b.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	lease := func(id int64) coder.Lease { return coder.Lease{ID: id, TTL: 500} }
	write(func(b sqlstore.BatchWrite) {
		for i, id := range []int64{5, 6, 7} {
			rev := int64(2 + i)
			key := []byte{'k', byte('0' + id)}
			b.Put(coder.EncodeVersionKey(key, rev), coder.EncodeVersion(&coder.Record{Key: key, CreateRevision: rev,
				ModRevision: rev, Version: 1, Lease: id}))
			b.Put(coder.EncodeIndexKey(key), coder.EncodeIndex(coder.Index{ModRevision: rev, CreateRevision: rev, Version: 1,
				Lease: id}))
		}
		for _, id := range []int64{5, 6, 8, 9} { // not 7: it came and went
			b.Put(coder.EncodeLeaseKey(id), coder.EncodeLease(lease(id)))
		}
	})
	e := New(store, node{chosen: func() {
		write(func(b sqlstore.BatchWrite) {
			b.Del(coder.EncodeLeaseKey(6))
			b.Del(coder.EncodeLeaseKey(9))
		})
	}})
	s, err := e.OpenSnapshot(t.Context(), auth.System)
	if err != nil || s.Revision != 9 || s.Term != 3 {
		t.Fatal(s, err)
	}
	keys := 0
	if _, err := s.Versions(t.Context(), func(Version) error { keys++; return nil }); err != nil || keys != 3 {
		t.Fatal(keys, err)
	}
	want := map[coder.Lease]bool{lease(5): true, lease(6): true, lease(8): true, {ID: 7, TTL: passingLease}: true}
	got := s.Leases()
	for _, l := range got {
		if !want[l] {
			t.Errorf("%+v is in the snapshot", l)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%+v", got)
	}
}

// TestReplacedTableIsRefused: a failover loses the newest commit while it is read, or a whole restore runs. Writes and
// compactions do not count.
func TestReplacedTableIsRefused(t *testing.T) {
	token := func(rev int64) []byte { return coder.EncodeFenceToken(coder.FenceToken{Sequence: rev, Revision: rev}) }
	log := func(key string) []byte {
		return coder.EncodeLog(time.UnixMilli(1), []coder.Change{{Revision: 9, Key: []byte(key)}})[0]
	}
	row := coder.EncodeLogKey(9, 1)
	for name, c := range map[string]struct {
		change func(sqlstore.BatchWrite)
		want   error
	}{
		"next commit":  {func(b sqlstore.BatchWrite) { b.Put(coder.FenceKey(), token(10)) }, nil},
		"lost":         {func(b sqlstore.BatchWrite) { b.Del(row) }, errReplaced},
		"other commit": {func(b sqlstore.BatchWrite) { b.Put(row, log("other")) }, errReplaced},
		"older":        {func(b sqlstore.BatchWrite) { b.Put(coder.FenceKey(), token(8)) }, errReplaced},
		"restored": {func(b sqlstore.BatchWrite) {
			b.Put(coder.JobKey(), coder.EncodeJob(coder.Job{Kind: coder.JobRestore, Ended: true}))
		}, errReplaced},
		"compacted": {func(b sqlstore.BatchWrite) {
			b.Del(row)
			b.Put(coder.CompactKey(), coder.EncodeInt64(10))
		}, mvcc.ErrCompacted},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			defer func() { require.NoError(t, store.Close()) }()
			write := func(change func(sqlstore.BatchWrite)) {
				b := store.BeginBatchWrite()
				change(b)
				require.NoError(t, b.Commit(t.Context()))
			}
			write(func(b sqlstore.BatchWrite) {
				b.Put(coder.FenceKey(), token(9))
				b.Put(row, log("k"))
			})
			s, err := OpenTable(t.Context(), store)
			require.NoError(t, err)
			write(c.change)
			_, err = s.Versions(t.Context(), func(Version) error { return nil })
			require.ErrorIs(t, err, c.want)
		})
	}
}
