package replica

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func rangeOf(from, end string) mvcc.KeyRange {
	return mvcc.KeyRange{Key: []byte(from), End: []byte(end)}
}

func TestSequencerReadsNoRanges(t *testing.T) {
	l, s := idleOn(t)
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
	require.NoError(t, s.run(l, c))
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

// TestPreparedRangesEqualNewestState compares what a prepared range shows with what
// the table holds, after random changes in between, some of them in the same batch.
func TestPreparedRangesEqualNewestState(t *testing.T) {
	l, _ := idleOn(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	change := func() *write.TxnCommand {
		key := fmt.Sprintf("k%02d", rnd.IntN(40))
		if rnd.IntN(3) == 0 {
			return write.NewTxnCommand(del(key))
		}
		return write.NewTxnCommand(put(key, fmt.Sprint(rnd.Int())))
	}
	for range 50 {
		for range 20 {
			runTogether(t, l, change())
		}
		kr := rangeOf(fmt.Sprintf("k%02d", rnd.IntN(20)), fmt.Sprintf("k%02d", 20+rnd.IntN(20)))
		whole, count := &mvcc.RangeRequest{KeyRange: kr}, &mvcc.RangeRequest{KeyRange: kr, CountOnly: true}
		page := &mvcc.RangeRequest{KeyRange: kr, Limit: 5}
		reads := []mvcc.Op{{Range: whole}, {Range: count}, {Range: page}}
		putting := preparedTxn(t, l, &mvcc.Txn{Then: append(
			[]mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte("k19"), Value: []byte("own")}}}, reads...)})
		deleting := preparedTxn(t, l, &mvcc.Txn{Then: append(
			[]mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: kr, PrevKV: true}}}, reads...)})
		for range rnd.IntN(10) {
			runTogether(t, l, change())
		}
		// Without preparation, and so from the table.
		look := write.NewTxnCommand(&mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte("other")}}, {Range: whole}}})
		for i, err := range runTogether(t, l, change(), change(), putting, look, deleting) {
			require.NoError(t, err, "command %d", i)
		}
		want := look.Result().Results[1].Range
		got := putting.Result().Results
		require.Equal(t, describeRecords(want.Records), describeRecords(got[1].Range.Records))
		require.Equal(t, want.Count, got[2].Range.Count)
		require.Equal(t, want.Count, got[3].Range.Count)
		require.Equal(t, want.Count > 5, got[3].Range.More)
		require.Equal(t, describeRecords(want.Records[:min(5, want.Count)]), describeRecords(got[3].Range.Records))
		got = deleting.Result().Results
		require.Equal(t, describeRecords(want.Records), describeRecords(got[0].Delete.Prev))
		require.Equal(t, want.Count, got[0].Delete.Deleted)
		for _, r := range got[1:] {
			require.Zero(t, r.Range.Count)
			require.Empty(t, r.Range.Records)
		}
	}
}

func describeRecords(records []*coder.Record) (out []string) {
	for _, r := range records {
		out = append(out, fmt.Sprintf("%s=%s %d %d %d", r.Key, r.Value, r.CreateRevision, r.ModRevision, r.Version))
	}
	return out
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
	s := &onlyPrepared{Store: newStore(t), t: t}
	b := open(t, s, nil)
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

	// Other users and roles, another verdict.
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

// onlyPrepared is a store that fails every read while it is closed for reading.
type onlyPrepared struct {
	sqlstore.Store
	closed atomic.Bool
	t      testing.TB
}

func (s *onlyPrepared) check(what string) {
	if s.closed.Load() {
		s.t.Errorf("the sequencer read the table: %s", what)
	}
}

func (s *onlyPrepared) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.check("get")
	return s.Store.Get(ctx, key)
}

func (s *onlyPrepared) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	s.check("multi-get")
	return s.Store.MultiGet(ctx, keys)
}

func (s *onlyPrepared) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	s.check("iteration")
	return s.Store.Iter(ctx, r)
}

func (s *onlyPrepared) List(ctx context.Context, q sqlstore.ListQuery) ([]sqlstore.ListRow, bool, error) {
	s.check("list")
	return s.Store.List(ctx, q)
}

func (s *onlyPrepared) Count(ctx context.Context, start, end []byte, rev int64) (int64, int64, error) {
	s.check("count")
	return s.Store.Count(ctx, start, end, rev)
}

func (s *onlyPrepared) SeekNth(ctx context.Context, start, end []byte, n int) ([]byte, error) {
	s.check("seek_nth")
	return s.Store.SeekNth(ctx, start, end, n)
}

// idleOn is idle on a store that tells whether evaluation reads it, with caches that
// are too small for everything.
func idleOn(t *testing.T) (*leader, *onlyPrepared) {
	t.Helper()
	s := &onlyPrepared{Store: newStore(t), t: t}
	b, err := prepare(t.Context(), s, exclusive(t, func(c *Config) { c.Write.IndexCache, c.RecordCache = 10, 0 }))
	require.NoError(t, err)
	t.Cleanup(func() { b.Hub.Close(); b.metrics.withdraw() })
	l, err := b.takeOver(t.Context())
	require.NoError(t, err)
	b.leading.Store(l)
	return l, s
}

// run evaluates and commits a command, while the store is not to be read.
func (s *onlyPrepared) run(l *leader, cmd write.Command) error {
	s.t.Helper()
	s.closed.Store(true)
	defer s.closed.Store(false)
	return l.pipeline.ExecuteBatch(s.t.Context(), write.Request{As: auth.System, Command: cmd})[0]
}

// prepared returns the command of a transaction with what it reads ahead.
func preparedTxn(t *testing.T, l *leader, txn *mvcc.Txn) *write.TxnCommand {
	t.Helper()
	c, err := l.pipeline.PrefetchTxn(t.Context(), txn)
	require.NoError(t, err)
	t.Cleanup(func() { l.pipeline.Release(c.Prefetched()) })
	return c
}
