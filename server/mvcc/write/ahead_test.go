package write

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

// deleteAll returns a transaction that deletes all keys from from up to end.
func deleteAll(from, end string) *mvcc.Txn {
	return &mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: []byte(from), End: []byte(end)}}}}}
}

// fill writes n keys below k/ in one transaction.
func fill(t *testing.T, l *testLeader, n int) {
	t.Helper()
	large := &mvcc.Txn{}
	for i := range n {
		large.Then = append(large.Then, put(fmt.Sprintf("k/%06d", i), "v").Then...)
	}
	l.must(t, large)
}

// Those before it need not wait for its commit.
func TestALargeCommandIsCommittedAlone(t *testing.T) {
	l := lead(t, newStore(t))
	fill(t, l, aloneKeys+1)
	c, err := l.p.PrepareTxn(t.Context(), deleteAll("k/", "k0"))
	require.NoError(t, err)
	defer l.p.Settle(c.Prepared())
	sequence := l.chain.Sequence
	for _, err := range l.together(t, NewTxnCommand(put("a", "1")), c, NewTxnCommand(put("b", "1"))) {
		require.NoError(t, err)
	}
	require.EqualValues(t, aloneKeys+1, c.result.Results[0].Delete.Deleted)
	require.EqualValues(t, 3, l.chain.Sequence-sequence)
}

func TestManyDeletesDoNotEmptyTheIndexCache(t *testing.T) {
	l := lead(t, newStore(t), func(c *Config) { c.Limits.IndexCache = 100 })
	fill(t, l, 2*aloneKeys)
	l.must(t, put("hot", "1"))
	c, err := l.p.PrepareTxn(t.Context(), deleteAll("k/", "k0"))
	require.NoError(t, err)
	defer l.p.Settle(c.Prepared())
	require.NoError(t, l.together(t, c)[0])
	require.EqualValues(t, 2*aloneKeys, c.result.Results[0].Delete.Deleted)
	_, cached := l.p.index.peek([]byte("hot"))
	require.True(t, cached)
}

// A preparation ends with its request, whether that was executed or refused.
func TestPreparationsEndWithTheirRequests(t *testing.T) {
	const most = 2 * mvcc.PageRows
	l := lead(t, newStore(t), func(c *Config) { c.Limits.TxnKeys = most })
	fill(t, l, most+1)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.p.Run(ctx) })
	defer running.Wait()
	defer cancel()
	_, err := l.p.Txn(t.Context(), auth.System, deleteAll("k/", "k0"))
	require.ErrorIs(t, err, mvcc.ErrTooLarge)
	_, err = l.p.Txn(t.Context(), auth.System, deleteAll("k/", "k/001500"))
	require.NoError(t, err)
	require.Zero(t, len(l.p.aheads.active))
	require.True(t, l.p.txnRoom.TryAcquire(most), "room was not given back")
}

// Ranges of one transaction may overlap, touch, contain each other and be empty.
func TestCommitsAreNotedInAllRangesOfATransaction(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		key := func() string { return fmt.Sprintf("k/%02d", r.IntN(30)) }
		l := lead(t, newStore(t))
		change := func() {
			for range 10 {
				l.must(t, put(key(), "1"), del(key()))
			}
		}
		change()
		txn := put("other", "1")
		for range r.IntN(6) + 1 {
			kr := mvcc.KeyRange{Key: []byte(key()), End: []byte(key())}
			if r.IntN(8) == 0 {
				kr.End = []byte{0}
			}
			txn.Then = append(txn.Then, mvcc.Op{Range: &mvcc.RangeRequest{KeyRange: kr}})
		}
		c, err := l.p.PrepareTxn(t.Context(), txn)
		require.NoError(t, err)
		change()
		now := l.p.cfg.Reader.At(l.Revision())
		wanted := make([]*mvcc.RangeResult, len(txn.Then))
		for i, op := range txn.Then[1:] {
			want, err := now.Range(t.Context(), op.Range)
			require.NoError(t, err)
			if op.Range.End[0] == 0 { // it sees the transaction's own put
				want.Count++
			}
			wanted[i+1] = want
		}
		require.NoError(t, l.together(t, c)[0])
		for i, got := range c.result.Results[1:] {
			want := wanted[i+1]
			require.EqualValues(t, want.Count, got.Range.Count, "seed %d, range %d", seed, i)
			for j, rec := range want.Records {
				require.Equal(t, rec, got.Range.Records[j], "seed %d, range %d, record %d", seed, i, j)
			}
		}
		l.p.Settle(c.Prepared())
	}
}

// The index cache says that a key does not exist, which the table contradicts.
func TestAStaleIndexIsNotBelieved(t *testing.T) {
	l := lead(t, newStore(t))
	l.must(t, put("k", "1"))
	rev := l.Revision()
	l.p.index.lru.Add("k", indexEntry{}) // believes that k does not exist
	l.must(t, put("k", "2"))
	got, err := l.p.cfg.Reader.At(l.Revision()).Get(t.Context(), []byte("k"), true)
	require.NoError(t, err)
	require.EqualValues(t, 2, got.Version)
	require.Equal(t, rev, got.CreateRevision)
	require.Equal(t, l.Revision(), got.ModRevision)
}

// A leader that was replaced while its process was paused may read what the new one has compacted.
// Its clients did not ask for a revision, so that none of them is told that it was compacted.
func TestALeaderThatIsOvertakenByCompaction(t *testing.T) {
	l := lead(t, newStore(t))
	l.must(t, put("k", "1"))
	l.compacted = l.Revision() + 1
	_, err := l.p.PrepareTxn(t.Context(), deleteAll("k", "l"))
	require.ErrorIs(t, err, read.ErrOvertaken)
	require.Error(t, l.End(mvcc.ErrNotLeader))
	_, err = l.p.PrepareTxn(t.Context(), deleteAll("k", "l"))
	require.ErrorIs(t, err, mvcc.ErrNotLeader)
	require.Empty(t, l.p.aheads.active)
}
