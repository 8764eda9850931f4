package replica

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func rangeOf(from, end string) mvcc.KeyRange {
	return mvcc.KeyRange{Key: []byte(from), End: []byte(end)}
}

func TestSequencerReadsNoRanges(t *testing.T) {
	store := newStore(t)
	s := &sealed{Store: store, open: store}
	l := idleWith(t, s, func(c *Config) { c.Write.IndexCache, c.RecordCache = 10, 0 }) // too small for everything
	for i := range 300 {
		runTogether(t, l, write.NewTxnCommand(put(fmt.Sprintf("k%03d", i), "v")))
	}
	old := l.replica.Revision()
	runTogether(t, l, write.NewTxnCommand(put("k000", "w")))
	kr := rangeOf("k", "l")
	c := preparedTxn(t, l, &mvcc.Txn{
		Compares: []mvcc.Compare{{KeyRange: kr, Target: mvcc.CompareVersion, Result: mvcc.CompareGreater}},
		Then: []mvcc.Op{
			{Range: &mvcc.RangeRequest{KeyRange: kr, SortBy: mvcc.SortByMod, SortOrder: mvcc.SortDescend}},
			{Range: &mvcc.RangeRequest{KeyRange: kr, Revision: old}},
			{Delete: &mvcc.DeleteRequest{KeyRange: kr, PrevKV: true}},
			{Range: &mvcc.RangeRequest{KeyRange: kr}},
		},
	})
	runTogether(t, l, write.NewTxnCommand(put("k001", "new")), write.NewTxnCommand(del("k002")),
		write.NewTxnCommand(put("k999", "created")))
	runTogether(t, l, write.NewTxnCommand(put("k001", "newer")), write.NewTxnCommand(put("l", "outside")))
	before := l.replica.Revision()
	s.Store = nil
	require.NoError(t, runTogether(t, l, c)[0])
	s.Store = store
	res := c.Result()
	require.True(t, res.Succeeded)
	require.EqualValues(t, 300, res.Results[0].Range.Count)
	require.Equal(t, "k001", string(res.Results[0].Range.Records[0].Key))
	require.EqualValues(t, 300, res.Results[1].Range.Count)
	require.Equal(t, "v", string(res.Results[1].Range.Records[0].Value))
	deleted := res.Results[2].Delete
	require.EqualValues(t, 300, deleted.Deleted)
	require.Equal(t, "newer", string(deleted.Prev[1].Value))
	require.Equal(t, "created", string(deleted.Prev[299].Value))
	require.Zero(t, res.Results[3].Range.Count)
	require.Equal(t, before+1, l.replica.Revision())
	left := mustRange(t, l.replica, &mvcc.RangeRequest{KeyRange: all()})
	require.EqualValues(t, 1, left.Count)
}

// TestRangeDeleteBeyondLimitIsRefusedBeforeReading: before its keys are read.
func TestRangeDeleteBeyondLimitIsRefusedBeforeReading(t *testing.T) {
	s := &listLog{Store: newStore(t)}
	const keys, most = 5 * mvcc.PageRows, 2 * mvcc.PageRows
	b := open(t, s, func(c *Config) { c.Write.TxnKeys, c.RecordCache = most, 0 })
	attach(t, b, "k/", keys, 0)
	s.rows.Store(0)
	_, err := b.Txn(t.Context(), auth.System,
		&mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: rangeOf("k/", "k0")}}}}, true)
	require.ErrorIs(t, err, mvcc.ErrTooLarge)
	_, err = b.Txn(t.Context(), auth.System, &mvcc.Txn{
		Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte("x")}}},
		Else: []mvcc.Op{{Txn: &mvcc.Txn{Compares: []mvcc.Compare{{KeyRange: rangeOf("k/", "k0"),
			Target: mvcc.CompareVersion}}}}},
	}, true)
	require.ErrorIs(t, err, mvcc.ErrTooLarge)
	require.LessOrEqual(t, s.rows.Load(), int64(2*(mvcc.PageRows+2*mvcc.PageRows)),
		"rows were read for requests that were refused")
	require.EqualValues(t, keys, mustRange(t, b, &mvcc.RangeRequest{KeyRange: all(), CountOnly: true}).Count)
	res := mustTxn(t, b, &mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: rangeOf("k/", "k/001500")}}}})
	require.EqualValues(t, 1500, res.Results[0].Delete.Deleted)
	// Tombstones do not count.
	for _, end := range []string{"k/003000", "k/003500"} {
		mustTxn(t, b, &mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: rangeOf("k/", end)}}}})
	}
	res = mustTxn(t, b, &mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: rangeOf("k/", "k0")}}}})
	require.EqualValues(t, 1500, res.Results[0].Delete.Deleted)
}

func TestLeaseVerdictIsReachedOnce(t *testing.T) {
	b := open(t, newStore(t), nil)
	l := b.leading.Load()
	mustGrant(t, b, 7, 3600)
	attach(t, b, "k/", 50, 7)
	allowed := map[byte]bool{'k': true, 'm': true}
	denied := fmt.Errorf("denied")
	seen := 0
	permit := auth.NewPermit(func(ctx context.Context, at auth.View) error {
		return at.MayWriteLease(ctx, 7, "me", func(key []byte) error {
			if seen++; allowed[key[0]] {
				return nil
			}
			return denied
		})
	})
	putOne := func(key string) error { _, err := b.Txn(t.Context(), permit, putLeased(key, 7), true); return err }
	require.NoError(t, putOne("k/new"))
	require.GreaterOrEqual(t, seen, 50)
	seen = 0
	for i := range 10 {
		require.NoError(t, putOne(fmt.Sprintf("m/%d", i)))
	}
	require.LessOrEqual(t, seen, 2*10, "keys were judged again")

	// Another user attaches a key that this one may not write, and detaches it.
	mustTxn(t, b, putLeased("z", 7))
	require.ErrorIs(t, putOne("m"), denied)
	_, err := lessor(t, b).Revoke(t.Context(), permit, 7)
	require.ErrorIs(t, err, denied)
	mustTxn(t, b, put("z", "1"))
	require.NoError(t, putOne("m"))

	// Other users and roles, another decision.
	allowed['k'] = false
	_, err = b.Auth.Change(t.Context(), auth.System, setUser("me", "x"))
	require.NoError(t, err)
	require.ErrorIs(t, putOne("m"), denied)
	seen = 0
	require.ErrorIs(t, putOne("m"), denied)
	require.LessOrEqual(t, seen, 2, "a refusal judged all keys again")
	for _, k := range mustRange(t, b, &mvcc.RangeRequest{KeyRange: rangeOf("k", "l")}).Records {
		mustTxn(t, b, del(string(k.Key)))
	}
	require.NoError(t, putOne("m"))

	// More keys than are noted.
	attach(t, b, "m/many", 2*write.UncheckedKeys, 7)
	require.NoError(t, putOne("m"))
	require.LessOrEqual(t, l.pipeline.Decisions(7), 1)
}

// sealed is a store that panics when it is read while Store is nil.
type sealed struct {
	sqlstore.Store
	open sqlstore.Store
}

func (s *sealed) BeginBatchWrite() sqlstore.BatchWrite { return s.open.BeginBatchWrite() }

// prepared returns the command of a transaction with what it reads ahead.
func preparedTxn(t *testing.T, l *leader, txn *mvcc.Txn) *write.TxnCommand {
	t.Helper()
	c, err := l.pipeline.PrefetchTxn(t.Context(), txn)
	require.NoError(t, err)
	t.Cleanup(func() { l.pipeline.Release(c.Prefetched()) })
	return c
}
