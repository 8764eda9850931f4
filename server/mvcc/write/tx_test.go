package write

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/txn"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// A range in a transaction finds each key once, in its newest version, and a count finds as
// many, whether the table, an earlier command of the batch or the transaction itself wrote it.
func TestRangesInATransactionSeeTheNewestStateOnce(t *testing.T) {
	l := lead(t, newStore(t))
	l.must(t, put("a", "table"), put("b", "table"), put("c", "table"))
	batch := &mvcc.Txn{Then: append(append(put("b", "batch").Then, del("c").Then...), put("d", "batch").Then...)}
	own := &mvcc.Txn{Then: append(append(append(put("b", "own").Then, put("e", "own").Then...), del("d").Then...),
		mvcc.Op{Range: &mvcc.RangeRequest{KeyRange: all()}},
		mvcc.Op{Range: &mvcc.RangeRequest{KeyRange: all(), CountOnly: true}},
		mvcc.Op{Range: &mvcc.RangeRequest{KeyRange: all(), Limit: 1}},
	)}
	c := NewTxnCommand(own)
	for _, err := range l.together(t, NewTxnCommand(batch), c) {
		require.NoError(t, err)
	}
	listed, counted, paged := c.Result().Results[3].Range, c.Result().Results[4].Range, c.Result().Results[5].Range
	var found string
	for _, r := range listed.Records {
		found += fmt.Sprintf("%s=%s ", r.Key, r.Value)
	}
	require.Equal(t, "a=table b=own e=own ", found)
	require.EqualValues(t, 3, listed.Count)
	require.EqualValues(t, 3, counted.Count)
	require.EqualValues(t, 3, paged.Count)
	require.True(t, paged.More)
}

// The events of a revision are ordered by Sub, from 0, which is their order in the transaction.
func TestChangesOfATransactionAreNumbered(t *testing.T) {
	l := lead(t, newStore(t))
	l.must(t, put("c", "1"))
	request := &mvcc.Txn{Then: append(append(put("b", "1").Then, del("c").Then...), put("a", "1").Then...)}
	l.must(t, request)
	lo, hi := coder.LogBounds(l.Revision(), l.Revision())
	var order string
	for row, err := range l.p.cfg.Store.Iter(t.Context(), sqlstore.Range{Start: lo, End: hi}) {
		require.NoError(t, err)
		changes, err := coder.DecodeLog(row.Value)
		require.NoError(t, err)
		for _, c := range changes {
			order += fmt.Sprintf("%s%d ", c.Key, c.Sub)
		}
	}
	require.Equal(t, "b0 c1 a2 ", order)
	got, err := l.p.cfg.Reader.At(l.Revision()).Get(t.Context(), []byte("a"), true)
	require.NoError(t, err)
	require.EqualValues(t, 2, got.Sub)
}

// The requests of a batch share the time of its commit. A clock that is put back does not make a commit earlier than
// the one before.
func TestCommitTimesNeverGoBack(t *testing.T) {
	now := time.UnixMilli(5000)
	l := lead(t, newStore(t), func(c *Config) { c.Clock = func() time.Time { return now } })
	l.p.NotBefore(time.UnixMilli(7000)) // the predecessor's clock was ahead
	l.must(t, put("a", "1"), put("b", "1"))
	now = time.UnixMilli(8000)
	l.must(t, put("a", "2"))
	now = time.UnixMilli(6000)
	l.must(t, put("a", "3"))
	now = time.Now() // with a monotonic clock's reading, which must not count
	l.must(t, put("a", "4"))
	log := history.New(l.p.cfg.Store, l.Mark)
	for i, want := range []time.Time{time.UnixMilli(7000), time.UnixMilli(7000),
		time.UnixMilli(8000), time.UnixMilli(8000),
		now.Truncate(time.Millisecond)} {
		got, err := log.CommitOf(t.Context(), int64(2+i))
		require.NoError(t, err)
		require.True(t, want.Equal(got.At), "revision %d is of %s, want %s", 2+i, got.At, want)
	}
}

// A transaction that reads below the compact revision fails before it writes anything.
func TestTransactionDoesNotReadCompactedRevisions(t *testing.T) {
	l := lead(t, newStore(t))
	l.must(t, put("a", "1"), put("a", "2"), put("a", "3"))
	l.compacted = 3
	for revision, want := range map[int64]error{3: nil, 2: mvcc.ErrCompacted, -1: mvcc.ErrCompacted} {
		before := l.Revision()
		request := put("b", "1")
		request.Then = append(request.Then, mvcc.Op{Range: &mvcc.RangeRequest{KeyRange: all(), Revision: revision}})
		c, err := l.p.PrefetchTxn(t.Context(), request)
		require.NoError(t, err)
		require.ErrorIs(t, l.together(t, c)[0], want, "revision %d", revision)
		l.p.Release(c.Prefetched())
		require.Equal(t, want == nil, l.Revision() > before)
	}
}

// A permit is judged on the users and roles that earlier commands of its batch leave.
func TestPermitSeesAuthChangeOfItsBatch(t *testing.T) {
	l := lead(t, newStore(t))
	changed := auth.NewRows()
	changed.Version = 7
	var judged []int64
	as := auth.System
	for i, err := range l.p.ExecuteBatch(t.Context(),
		Request{As: as, Command: Func(func(_ context.Context, tx *Tx) error {
			tx.SetAuth(changed)
			tx.SetRow([]byte("auth"), []byte("7"))
			return nil
		})},
		Request{As: auth.NewPermit(func(_ context.Context, at auth.View) error {
			judged = append(judged, at.AuthRows().Version)
			return nil
		}), Command: NewTxnCommand(put("a", "1"))},
	) {
		require.NoError(t, err, "command %d", i)
	}
	// Once before the request is queued, and once on the sequencer.
	require.Equal(t, []int64{0, 7}, judged)
}

// A row that the commit replaces must hold what the index cache says, even if it is missing.
func TestIndexRowOfALiveKeyMustExist(t *testing.T) {
	store := newStore(t)
	l := lead(t, store)
	l.must(t, put("k", "1"))
	batch := store.BeginBatchWrite()
	batch.Del(coder.EncodeIndexKey([]byte("k")))
	require.NoError(t, batch.Commit(t.Context()))
	before, ok := l.p.index.peek([]byte("k"))
	require.True(t, ok)
	replace := func(before indexEntry) error {
		b := newBatch(l.p, false)
		rec := &coder.Record{Key: []byte("k"), ModRevision: 3}
		b.bases = []indexEntry{before}
		b.changed.Add(&txn.Change{Record: rec})
		conditional := store.BeginBatchWrite()
		sqlstore.Add(conditional, b.ops(time.Now()))
		return conditional.Commit(t.Context())
	}
	var conflict *sqlstore.Conflict
	require.ErrorAs(t, replace(before), &conflict)
	before.Index = coder.Index{ModRevision: 1, Tombstone: true} // compaction removes the index rows of tombstones
	require.NoError(t, replace(before))
}

// A deletion writes no version row: the index row says all, until another version follows. Kubernetes deletes as
// many objects as it creates.
func TestTombstonesHaveVersionRowsOnceTheyAreReplaced(t *testing.T) {
	l := lead(t, newStore(t))
	versions := func() (found []int64) {
		lo, hi := coder.VersionBounds([]byte{0}, []byte{0})
		for rec, err := range history.EachVersion(t.Context(), l.p.cfg.Store, sqlstore.Range{Start: lo, End: hi}) {
			require.NoError(t, err)
			if rec.Tombstone {
				found = append(found, -rec.ModRevision)
			} else {
				found = append(found, rec.ModRevision)
			}
		}
		return found
	}
	l.must(t, put("k", "1")) // revision 2
	l.must(t, del("k"))
	require.Equal(t, []int64{2}, versions())
	l.must(t, put("k", "2"))
	l.must(t, del("k"))
	require.Equal(t, []int64{2, -3, 4}, versions())
	l.must(t, put("k", "3"), del("k"), put("k", "4"), del("k")) // one commit
	require.Equal(t, []int64{2, -3, 4, -5, 6, -7, 8}, versions())

	// The log names each of these rows, or compaction would leave them for ever.
	var named []int64
	lo, hi := coder.LogBounds(0, math.MaxInt64)
	for row, err := range l.p.cfg.Store.Iter(t.Context(), sqlstore.Range{Start: lo, End: hi}) {
		require.NoError(t, err)
		changes, err := coder.DecodeLog(row.Value)
		require.NoError(t, err)
		for _, c := range changes {
			if named = append(named, c.PrevRevision); c.PrevTombstone != 0 {
				named[len(named)-1] = -c.PrevTombstone
			}
		}
	}
	require.Equal(t, []int64{0, 2, -3, 4, -5, 6, -7, 8}, named)
}

// A key whose rows change while they are read is not as cached, unless another leader may have changed them: then
// the answer is that this node does not lead.
func TestKeyThatChangesWhileItIsRead(t *testing.T) {
	l := lead(t, newStore(t))
	l.must(t, put("k", "1"))
	l.p.index.lru.Add("gone", indexEntry{Index: coder.Index{ModRevision: 2, Version: 1}, exists: true})
	read := func() (outcome, error) {
		tx := newBatch(l.p, false).begin(nil)
		_, err := tx.Get(t.Context(), []byte("gone"), true)
		return tx.outcome, err
	}
	outcome, err := read()
	require.Error(t, err)
	require.Equal(t, cacheStale, outcome, "the index cache is wrong")
	require.Error(t, l.End(mvcc.ErrNotLeader))
	outcome, err = read()
	require.ErrorIs(t, err, mvcc.ErrNotLeader)
	require.Equal(t, decided, outcome)
}

// An index row that cannot be decoded fails the commands that need it, and not those whose rows are read with it.
func TestMalformedIndexRowFailsOnlyItsCommands(t *testing.T) {
	store := newStore(t)
	l := lead(t, store)
	l.must(t, put("good", "1"), put("bad", "1"))
	b := store.BeginBatchWrite()
	b.Put(coder.EncodeIndexKey([]byte("bad")), []byte("x"))
	require.NoError(t, b.Commit(t.Context()))
	l.p.Forget(false)
	errs := l.together(t, NewTxnCommand(put("good", "2")), NewTxnCommand(put("bad", "2")), NewTxnCommand(put("bad", "3")))
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], coder.ErrMalformed)
	require.ErrorIs(t, errs[2], coder.ErrMalformed)

	l.p.Forget(false)
	l.p.readKeys(t.Context(), [][]byte{[]byte("bad"), []byte("good")})
	require.Equal(t, 1, l.p.index.entries(), "the other row is cached")
}
