package snapshot

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// content is what a table says, in terms that do not depend on how it came to be.
type content struct {
	Versions map[string][]byte
	Index    map[string]coder.Index
	Changes  []coder.Change
	Other    map[string][]byte // leases, attachments, users, roles
}

func contentOf(t *testing.T, store sqlstore.Store, compacted int64) content {
	t.Helper()
	c := content{Versions: map[string][]byte{}, Index: map[string]coder.Index{}, Other: map[string][]byte{}}
	each := func(lo, hi []byte, f func(k, v []byte)) {
		t.Helper()
		for row, err := range store.Iter(t.Context(), sqlstore.Range{Start: lo, End: hi}) {
			require.NoError(t, err)
			f(row.Key, row.Value)
		}
	}
	all := []byte{0}
	lo, hi := coder.VersionBounds(all, all)
	var last string
	each(lo, hi, func(k, v []byte) {
		key, rev, err := coder.DecodeVersionKey(k)
		require.NoError(t, err)
		if before, _, err := coder.DecodeVersionKey([]byte(last)); err == nil && rev <= compacted &&
			string(before) == string(key) {
			delete(c.Versions, last) // what the compact revision replaced stays until the next compaction
		}
		last = string(k)
		rec, err := coder.DecodeVersion(key, rev, v)
		require.NoError(t, err)
		if !rec.Tombstone || rev >= compacted { // it stays until what replaced it is compacted
			c.Versions[last] = v
		}
	})
	lo, hi = coder.IndexBounds(all, all)
	each(lo, hi, func(k, v []byte) {
		x, err := coder.DecodeIndex(v)
		require.NoError(t, err)
		if x.PrevRevision < compacted {
			x.PrevRevision = 0 // compaction may have taken the row
		}
		c.Index[string(k)] = x
	})
	lo, hi = coder.LogBounds(0, math.MaxInt64)
	each(lo, hi, func(_, v []byte) {
		changes, err := coder.DecodeLog(v)
		require.NoError(t, err)
		for _, change := range changes {
			if change.Revision == compacted {
				change.PrevRevision = 0 // the same
			}
			if change.PrevTombstone < compacted {
				change.PrevTombstone = 0
			}
			if change.Revision >= compacted {
				c.Changes = append(c.Changes, change)
			}
		}
	})
	other := func(lo, hi []byte) { each(lo, hi, func(k, v []byte) { c.Other[string(k)] = v }) }
	other(coder.LeaseBounds())
	other(coder.AllAttachmentBounds())
	other(coder.AuthBounds(coder.AuthUser))
	other(coder.AuthBounds(coder.AuthRole))
	return c
}

func requireEqual(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-want +got)\n%.4000s", diff)
	}
}

// requireSame compares what two backends answer at every revision.
func requireSame(t *testing.T, want, got *replica.Replica) {
	t.Helper()
	require.Equal(t, want.Revision(), got.Revision())
	require.Equal(t, want.CompactRevision(), got.CompactRevision())
	marshal := func(r *coder.Record) ([]byte, error) { return EncodeValue(r) }
	for rev := max(want.CompactRevision(), 1); rev <= want.Revision(); rev++ {
		var answers [2]*mvcc.RangeResult
		var hashes [2]export.Hash
		for i, b := range []*replica.Replica{want, got} {
			var err error
			answers[i], err = b.Reader.Range(t.Context(), auth.System,
				&mvcc.RangeRequest{KeyRange: everything, Revision: rev}, true)
			require.NoError(t, err)
			hashes[i], err = b.Exporter.HashKV(t.Context(), auth.System, rev, marshal)
			require.NoError(t, err)
		}
		requireEqual(t, answers[0], answers[1])
		require.Equal(t, hashes[0], hashes[1], "at revision %d", rev)
	}
}

func TestLoadedTableEqualsTheSavedOne(t *testing.T) {
	for name, runBytes := range map[string]int{"in memory": defaultRunBytes, "in runs": 2000} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				from, to := newStore(t), newStore(t)
				a := serve(t, from)
				grow(t, a, seed)
				path := save(t, a, runBytes)
				l := load(t, path, to, LoadOptions{})
				require.Equal(t, l.Versions, recordsIn(t, path), "the file has what compaction removes")
				compacted := a.CompactRevision()
				requireEqual(t, contentOf(t, from, compacted), contentOf(t, to, compacted))
				require.Equal(t, a.Revision(), l.Revision)
				require.Equal(t, 1, l.Alarms)
				b := serve(t, to)
				requireSame(t, a, b)
				rows := b.Auth.Rows()
				require.True(t, rows.Enabled)
				require.EqualValues(t, 7, rows.Revision)

				_, err := a.Alarms.Disarm(t.Context(), auth.System, quota.Alarm{MemberID: 5, Type: quota.AlarmCorrupt})
				require.NoError(t, err)
				// Both go on alike, and compaction takes the same from both.
				for _, x := range []*replica.Replica{a, b} {
					mustTxn(t, x, put("k\x00a/1", "later", 0), del("x", "y"))
					_, err := x.Compact(t.Context(), auth.System, x.Revision(), true)
					require.NoError(t, err)
				}
				requireSame(t, a, b)
				compacted = a.CompactRevision()
				requireEqual(t, contentOf(t, from, compacted).Versions, contentOf(t, to, compacted).Versions)
			}
		})
	}
}

// recordsIn returns how many versions are in the file.
func recordsIn(t *testing.T, path string) (n int) {
	t.Helper()
	s, err := Open(t.Context(), path, false)
	require.NoError(t, err)
	require.NoError(t, s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketKey).ForEach(func(_, _ []byte) error { n++; return nil })
	}))
	require.NoError(t, s.Close())
	return n
}

func TestBumpRaisesTheRevisionAndCompacts(t *testing.T) {
	a := serve(t, newStore(t))
	grow(t, a, 2)
	store := newStore(t)
	path := save(t, a, defaultRunBytes)
	l := load(t, path, store, LoadOptions{Bump: 1000})
	require.Equal(t, a.Revision()+1000, l.Revision)
	require.Equal(t, l.Revision, l.CompactRevision)
	b := serve(t, store)
	require.Equal(t, l.Revision, b.Revision())
	_, err := b.Reader.Range(t.Context(), auth.System,
		&mvcc.RangeRequest{KeyRange: everything, Revision: a.Revision()}, true)
	require.ErrorIs(t, err, mvcc.ErrCompacted)
	want, err := a.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: everything}, true)
	require.NoError(t, err)
	got, err := b.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: everything}, true)
	require.NoError(t, err)
	requireEqual(t, want.Records, got.Records)
	require.Equal(t, l.Revision+1, mustTxn(t, b, put("next", "", 0)))

	// And such a table makes snapshots too, as etcdutl does of a raised etcd.
	again := newStore(t)
	load(t, save(t, b, defaultRunBytes), again, LoadOptions{})
	requireSame(t, b, serve(t, again))
}

// A gap that sqlbrain recover --mark-compacted=false has left.
func TestSnapshotAfterRecoverKeepsTheRevision(t *testing.T) {
	from, to := newStore(t), newStore(t)
	a := serve(t, from)
	mustTxn(t, a, put("a", "1", 0))
	found, err := repair.Examine(t.Context(), from)
	require.NoError(t, err)
	plan, err := found.Plan(50, false)
	require.NoError(t, err)
	require.NoError(t, found.Recover(t.Context(), from, plan))
	raised := serve(t, from)
	l := load(t, save(t, raised, defaultRunBytes), to, LoadOptions{})
	require.EqualValues(t, 52, l.Revision)
	requireSame(t, raised, serve(t, to))
}

func TestEmptyTableIsSavedAndLoaded(t *testing.T) {
	a, to := serve(t, newStore(t)), newStore(t)
	l := load(t, save(t, a, defaultRunBytes), to, LoadOptions{})
	require.Equal(t, Loaded{Revision: 1}, *l)
	requireSame(t, a, serve(t, to))
}
