package write

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

// manyRanges is more ranges than a transaction looks up before it sorts the changes of its batch.
const manyRanges = 48

// deleteAll returns a transaction that deletes all keys from from up to end.
func deleteAll(from, end string) *mvcc.Txn {
	return &mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: []byte(from),
		End: []byte(end)}}}}}
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

// prefetches returns how many prefetches have not been released.
func (l *testLeader) prefetches() (n int) {
	for range l.p.prefetches.Range {
		n++
	}
	return n
}

// A client that may not write has no ranges read for it. The sequencer decides what it may.
func TestRefusedTransactionReadsNothing(t *testing.T) {
	store := &hanging{Store: newStore(t)}
	l := lead(t, store)
	fill(t, l, 10)
	l.view.Purge(l.Revision())
	var reads atomic.Int64
	store.reads = func() { reads.Add(1) }
	defer l.run(t.Context())()
	txn := deleteAll("k/", "k0")
	txn.Then[0].Delete.PrevKV = true
	_, err := l.p.Txn(t.Context(), auth.NewPermit(func(context.Context, auth.View) error { return errDenied }), txn)
	require.ErrorIs(t, err, errDenied)
	require.Zero(t, reads.Load())

	permitted := false // a change of roles is committed before the sequencer checks the permit
	_, err = l.p.Txn(t.Context(), auth.NewPermit(func(_ context.Context, at auth.View) error {
		if _, sequencer := at.(*Tx); sequencer {
			require.Equal(t, permitted, reads.Load() > 0, "the sequencer must not read the ranges")
			permitted = true
		}
		if !permitted {
			return errDenied
		}
		return nil
	}), txn)
	require.NoError(t, err)
	require.Zero(t, l.keys(t))
}

// Those before it need not wait for its commit.
func TestALargeCommandIsCommittedAlone(t *testing.T) {
	l := lead(t, newStore(t))
	fill(t, l, exclusiveBatchKeys+1)
	c, err := l.p.PrefetchTxn(t.Context(), deleteAll("k/", "k0"))
	require.NoError(t, err)
	defer l.p.Release(c.Prefetched())
	sequence := l.token.Sequence
	for _, err := range l.together(t, NewTxnCommand(put("a", "1")), c, NewTxnCommand(put("b", "1"))) {
		require.NoError(t, err)
	}
	require.EqualValues(t, exclusiveBatchKeys+1, c.result.Results[0].Delete.Deleted)
	require.EqualValues(t, 3, l.token.Sequence-sequence)
}

func TestManyDeletesDoNotEmptyTheIndexCache(t *testing.T) {
	l := lead(t, newStore(t), func(c *Config) { c.Limits.IndexCache = 100 })
	fill(t, l, 2*exclusiveBatchKeys)
	l.must(t, put("hot", "1"))
	c, err := l.p.PrefetchTxn(t.Context(), deleteAll("k/", "k0"))
	require.NoError(t, err)
	defer l.p.Release(c.Prefetched())
	require.NoError(t, l.together(t, c)[0])
	require.EqualValues(t, 2*exclusiveBatchKeys, c.result.Results[0].Delete.Deleted)
	_, cached := l.p.index.peek([]byte("hot"))
	require.True(t, cached)
}

// A prefetch ends with its request, whether that was executed or refused.
func TestPrefetchesEndWithTheirRequests(t *testing.T) {
	const most = 2 * mvcc.PageRows
	l := lead(t, newStore(t), func(c *Config) { c.Limits.TxnKeys = most })
	fill(t, l, most+1)
	defer l.run(t.Context())()
	_, err := l.p.Txn(t.Context(), auth.System, deleteAll("k/", "k0"))
	require.ErrorIs(t, err, mvcc.ErrTooLarge)
	_, err = l.p.Txn(t.Context(), auth.System, deleteAll("k/", "k/001500"))
	require.NoError(t, err)
	require.Zero(t, l.prefetches())
	require.True(t, l.p.txnWeight.TryAcquire(most), "weight was not released")
}

// What concurrent updates of keys that are not in memory read takes few statements, none of which the sequencer waits for
// alone: of the previous values too.
func TestColdUpdatesReadTogether(t *testing.T) {
	const clients = 64
	value := bytes.Repeat([]byte("v"), 64<<10) // so many do not fit in the view
	for name, change := range map[string]func(key string) *mvcc.Txn{
		"put": func(key string) *mvcc.Txn { return put(key, "2") },
		"put with prev_kv": func(key string) *mvcc.Txn {
			t := put(key, "2")
			t.Then[0].Put.PrevKV = true
			return t
		},
		"delete with prev_kv": func(key string) *mvcc.Txn {
			t := del(key)
			t.Then[0].Delete.PrevKV = true
			return t
		},
		"compare of the value": func(key string) *mvcc.Txn {
			t := put(key, "2")
			t.Compares = []mvcc.Compare{{KeyRange: mvcc.KeyRange{Key: []byte(key)}, Target: mvcc.CompareValue,
				Result: mvcc.CompareEqual, Value: value}}
			return t
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &hanging{Store: newStore(t)}
				l := lead(t, store, func(c *Config) {
					c.Limits.QueueBytes, c.Limits.BatchBytes = 2*clients*len(value), 2*clients*len(value)
				})
				for i := range clients {
					l.must(t, put(fmt.Sprintf("k/%06d", i), string(value)))
				}
				l.p.index.purge()
				l.view.Purge(l.Revision())
				var statements atomic.Int64
				store.reads = func() {
					statements.Add(1)
					time.Sleep(time.Millisecond)
				}
				stop := l.run(t.Context())
				var writing sync.WaitGroup
				for i := range clients {
					writing.Go(func() {
						_, err := l.p.Txn(t.Context(), auth.System, change(fmt.Sprintf("k/%06d", i)))
						assert.NoError(t, err)
					})
				}
				writing.Wait()
				stop()
				require.LessOrEqual(t, statements.Load(), int64(8))
			})
		})
	}
}

// The index rows of transactions that name thousands of keys are not evicted before they are evaluated, or read again
// many at once.
func TestTransactionsOfManyKeysReadTogether(t *testing.T) {
	const clients, keys = 12, 8000
	for name, tc := range map[string]struct{ cache, misses int }{
		"default cache":        {DefaultLimits().IndexCache, 0},
		"cache for one of two": {keys * 3 / 2, clients * (keys/entriesAtOnce + 1)},
		"cache of one entry":   {1, clients * (keys/entriesAtOnce + 1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &hanging{Store: newStore(t), reads: func() { time.Sleep(time.Millisecond) }}
				l := lead(t, store, func(c *Config) { c.Limits.IndexCache = tc.cache })
				defer l.run(t.Context())()
				var writing sync.WaitGroup
				for i := range clients {
					txn := put(fmt.Sprint(i), "1")
					for k := range keys {
						txn.Compares = append(txn.Compares, mvcc.Compare{Target: mvcc.CompareVersion,
							Result: mvcc.CompareEqual, KeyRange: mvcc.KeyRange{Key: fmt.Appendf(nil, "%d/%d", i, k)}})
					}
					writing.Go(func() { assert.NoError(t, l.p.Submit(t.Context(), auth.System, NewTxnCommand(txn))) })
				}
				writing.Wait()
				require.LessOrEqual(t, testutil.ToFloat64(l.p.cfg.Metrics.indexMisses), float64(tc.misses))
			})
		})
	}
}

// Ranges at old revisions wait for memory like those at the newest one, even if the keys have been deleted since.
func TestRangesAtOldRevisionsTakeWeight(t *testing.T) {
	const most = 4 * exclusiveBatchKeys
	l := lead(t, newStore(t), func(c *Config) { c.Limits.TxnKeys = most })
	fill(t, l, 2*exclusiveBatchKeys)
	past := &mvcc.RangeRequest{KeyRange: all(), Revision: l.Revision()}
	l.must(t, del("k/000001"))
	prefetch := func(ctx context.Context) (*TxnCommand, error) {
		return l.p.PrefetchTxn(ctx, &mvcc.Txn{Then: []mvcc.Op{{Range: past}, {Put: put("x", "1").Then[0].Put}}})
	}
	first, err := prefetch(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2*exclusiveBatchKeys, first.prefetch.weight)
	require.Len(t, first.prefetch.past[past].Records, 2*exclusiveBatchKeys)
	require.True(t, l.p.txnWeight.TryAcquire(1))
	defer l.p.txnWeight.Release(1)
	l.must(t, put("k/new", "1"), put("k/newer", "1")) // they did not exist then
	answered := make(chan *TxnCommand)
	go func() {
		second, err := prefetch(t.Context())
		assert.NoError(t, err)
		answered <- second
	}()
	select {
	case <-answered:
		t.Fatal("it did not wait for memory")
	case <-time.After(10 * time.Millisecond): // a slow machine finds less
	}
	l.p.Release(first.Prefetched())
	l.p.Release((<-answered).Prefetched())
}

// Commits that come while a range is counted must not hide keys that are read at the revision before.
func TestKeysThatChangeWhileTheyAreCountedCount(t *testing.T) {
	l := lead(t, newStore(t))
	fill(t, l, 10)
	rev := l.revisions.Visible()
	l.must(t, put("k/000003", "2"))
	l.must(t, del("k/000004"))
	n, err := l.p.countUpTo(t.Context(), mvcc.KeyRange{Key: []byte("k/"), End: []byte("k0")}.Span(), rev, 100)
	require.NoError(t, err)
	require.EqualValues(t, 10, n)
}

// Ranges of one transaction may overlap, touch, contain each other and be empty.
func TestTransactionSeesChangesInAllItsRanges(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		key := func() string { return fmt.Sprintf("k/%02d", r.IntN(30)) }
		l := lead(t, newStore(t))
		changes := func() (commands []Command) {
			for range 10 {
				commands = append(commands, NewTxnCommand(put(key(), "1")), NewTxnCommand(del(key())))
			}
			return commands
		}
		l.together(t, changes()...)
		txn := put("a", "1")
		for range r.IntN(manyRanges) {
			kr := mvcc.KeyRange{Key: []byte(key()), End: []byte(key())}
			if r.IntN(8) == 0 {
				kr.End = []byte{0}
			}
			txn.Then = append(txn.Then, mvcc.Op{Range: &mvcc.RangeRequest{KeyRange: kr, Limit: r.Int64N(2) * r.Int64N(6)}})
		}
		c, err := l.p.PrefetchTxn(t.Context(), txn)
		require.NoError(t, err)
		l.together(t, changes()...)
		l.together(t, append(changes(), c)...)
		l.p.Release(c.Prefetched())
		before := l.p.cfg.Reader.At(c.result.Revision - 1)
		for i, op := range txn.Then[1:] {
			want, err := before.Range(t.Context(), op.Range)
			require.NoError(t, err)
			got := c.result.Results[i+1].Range
			require.Equal(t, want.Count, got.Count, "seed %d, range %d", seed, i)
			require.Equal(t, want.More, got.More, "seed %d, range %d", seed, i)
			require.Len(t, got.Records, len(want.Records), "seed %d, range %d", seed, i)
			if len(want.Records) > 0 {
				require.Equal(t, want.Records, got.Records, "seed %d, range %d", seed, i)
			}
		}
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
	_, err := l.p.PrefetchTxn(t.Context(), deleteAll("k", "l"))
	require.ErrorIs(t, err, read.ErrOvertaken)
	require.Error(t, l.End(mvcc.ErrNotLeader))
	_, err = l.p.PrefetchTxn(t.Context(), deleteAll("k", "l"))
	require.ErrorIs(t, err, mvcc.ErrNotLeader)
	require.Zero(t, l.prefetches())
}

// What a transaction reads at old revisions is in memory as a whole.
func TestRangesAtOldRevisionsAreBounded(t *testing.T) {
	l := lead(t, newStore(t), func(c *Config) { c.Limits.TxnKeys = 20 })
	fill(t, l, 15)
	txn := put("a", "1")
	for range 2 {
		txn.Then = append(txn.Then, mvcc.Op{Range: &mvcc.RangeRequest{KeyRange: all(), Revision: 2}})
	}
	_, err := l.p.PrefetchTxn(t.Context(), txn)
	require.ErrorIs(t, err, mvcc.ErrTooLarge)
	require.Zero(t, l.prefetches())
	txn.Then = txn.Then[:2]
	c, err := l.p.PrefetchTxn(t.Context(), txn)
	require.NoError(t, err)
	l.p.Release(c.Prefetched())
}

// The sequencer reads neither the index row nor the value of a key that a transaction reads.
func TestKeysThatATransactionReadsArePrefetched(t *testing.T) {
	store := &hanging{Store: newStore(t)}
	l := lead(t, store)
	l.must(t, put("k", "1"))
	l.p.index.purge()
	l.view.Purge(l.Revision())
	txn := put("a", "1")
	txn.Then = append(txn.Then, mvcc.Op{Range: &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k")}}})
	c, err := l.p.PrefetchTxn(t.Context(), txn)
	require.NoError(t, err)
	defer l.p.Release(c.Prefetched())
	r := &request{cmd: c, as: auth.System}
	l.p.prefetchIndex(t.Context(), []*request{r})
	store.reads = t.Fail
	_, res := l.p.evaluate(t.Context(), newBatch(l.p, false), r)
	require.NoError(t, res.err)
	require.Equal(t, "1", string(c.Result().Results[1].Range.Records[0].Value))
}

// A transaction whose ranges take long on the sequencer lets others go first, and prefetches again, for ever longer.
func TestRangesKeepTheSequencerForAShortTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{Store: newStore(t)}
		l := lead(t, store)
		l.must(t, put("k", "1"))
		txn := put("a", "1")
		txn.Then = append(txn.Then, mvcc.Op{Range: &mvcc.RangeRequest{KeyRange: all(), Limit: 1}})
		c, err := l.p.PrefetchTxn(t.Context(), txn)
		require.NoError(t, err)
		defer l.p.Release(c.Prefetched())
		l.view.Purge(l.Revision())
		store.readsHang = true
		share := l.p.cfg.Limits.CommitTimeout / rangesShare
		for attempt, want := range map[int]time.Duration{0: share, 1: 2 * share, 3: 8 * share,
			rangesShare: rangesShare * share} {
			c.prefetch.attempt = attempt
			began := time.Now()
			_, res := l.p.evaluate(t.Context(), newBatch(l.p, false), &request{cmd: c, as: auth.System})
			require.Error(t, res.err)
			require.Equal(t, prefetchFirst, res.outcome)
			require.Equal(t, want, time.Since(began))
		}
	})
}

// What clients read before they write takes turns with other ranges, and waits for memory without holding a turn.
func TestPrefetchesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{Store: newStore(t)}
		l := lead(t, store, func(c *Config) { c.Limits.TxnKeys = 3 * mvcc.PageRows })
		fill(t, l, 3*mvcc.PageRows)
		prefetch := func() error {
			c, err := l.p.PrefetchTxn(t.Context(), deleteAll("k/", "k0"))
			if err == nil {
				l.p.Release(c.Prefetched())
			}
			return err
		}
		began := time.Now()
		var atOnce, most atomic.Int64
		store.reads = func() {
			if time.Since(began) > 0 { // else it is a first page, for which nothing waits
				most.Store(max(most.Load(), atOnce.Add(1)))
				defer atOnce.Add(-1)
			}
			time.Sleep(time.Millisecond)
		}
		var running sync.WaitGroup
		for range 4 * runtime.GOMAXPROCS(0) {
			running.Go(func() { assert.NoError(t, prefetch()) })
		}
		running.Wait()
		require.LessOrEqual(t, most.Load(), int64(runtime.GOMAXPROCS(0)))

		l.view.Purge(l.Revision())
		require.True(t, l.p.txnWeight.TryAcquire(1))
		for range 2 * runtime.GOMAXPROCS(0) { // all of them wait for weight
			running.Go(func() { assert.NoError(t, prefetch()) })
		}
		synctest.Wait()
		time.Sleep(time.Second)
		res, err := l.p.cfg.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all()}, true)
		require.NoError(t, err)
		require.EqualValues(t, 3*mvcc.PageRows, res.Count)
		l.p.txnWeight.Release(1)
		running.Wait()
	})
}

// A command that was executed needs no changes, above all not its own.
func TestOwnChangesAreNotRecorded(t *testing.T) {
	l := lead(t, newStore(t))
	fill(t, l, 10)
	pre := func(txn *mvcc.Txn) *TxnCommand {
		c, err := l.p.PrefetchTxn(t.Context(), txn)
		require.NoError(t, err)
		return c
	}
	own, other := pre(deleteAll("", "\x00")), pre(deleteAll("", "\x00"))
	require.NoError(t, l.together(t, own)[0])
	require.Zero(t, own.prefetch.changed.Len())
	require.Equal(t, 10, other.prefetch.changed.Len())
	l.p.Release(own.prefetch)
	l.p.Release(other.prefetch)
	require.Zero(t, l.prefetches())
}

// Else a lease could be revoked without a key that was attached just before the prefetch.
func TestTheIndexCacheKnowsWhatBecomesVisible(t *testing.T) {
	l := lead(t, newStore(t))
	l.must(t, put("k", "1"))
	var cached indexEntry
	look := Func(func(_ context.Context, tx *Tx) error {
		tx.OnCommit(func() { cached, _ = l.p.index.peek([]byte("k")) })
		return nil
	})
	for _, err := range l.together(t, NewTxnCommand(put("k", "2")), look) {
		require.NoError(t, err)
	}
	require.Equal(t, l.Revision(), cached.ModRevision)
}

// Clients decide how large values are, and how many transactions wait.
func TestPrefetchedValuesAreBoundedTogether(t *testing.T) {
	l := lead(t, newStore(t))
	const most, size = 2 * MaxTxnBytes, 1000
	l.must(t, put("k", strings.Repeat("v", size)))
	single, past := put("k", "2"), &mvcc.Txn{Then: put("k", "3").Then}
	single.Then[0].Put.PrevKV = true
	past.Compares = []mvcc.Compare{{KeyRange: mvcc.KeyRange{Key: []byte("k"), End: []byte("l")}, Target: mvcc.CompareValue,
		Result: mvcc.CompareNotEqual, Value: []byte("no")}}
	free := func(n int64) {
		t.Helper()
		require.True(t, l.p.txnBytes.TryAcquire(n))
		require.False(t, l.p.txnBytes.TryAcquire(1))
		l.p.txnBytes.Release(n)
	}
	free(most)
	for _, txn := range []*mvcc.Txn{single, past} {
		c, err := l.p.PrefetchTxn(t.Context(), txn)
		require.NoError(t, err)
		free(most - size)
		l.p.Release(c.prefetch)
		free(most)
	}

	require.True(t, l.p.txnBytes.TryAcquire(most))
	c, err := l.p.PrefetchTxn(t.Context(), single)
	require.NoError(t, err)
	require.Nil(t, c.prefetch.values["k"])
	require.NoError(t, l.together(t, c)[0])
	require.Len(t, c.result.Results[0].Put.Prev.Value, size, "the evaluation has read it")
	l.p.Release(c.prefetch)
	ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = l.p.PrefetchTxn(ended, past)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	l.p.txnBytes.Release(most)
	free(most)
	require.Zero(t, l.prefetches())
}
