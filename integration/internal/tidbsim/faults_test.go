package tidbsim_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/integration/internal/tidbsim"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// shapes are batches of the two ways to commit, as in sqlstore/engines.
var shapes = map[string]func(w sqlstore.BatchWrite, n int, plain []byte){
	"one statement": func(sqlstore.BatchWrite, int, []byte) {},
	"transaction": func(w sqlstore.BatchWrite, n int, plain []byte) {
		w.CAS([]byte("plain"), fmt.Append(nil, n), plain)
		w.Put([]byte("put"), fmt.Append(nil, n))
		w.Del([]byte("doomed"))
		w.DelCurrent([]byte("other"), []byte("x"))
	},
}

// repeated are the faults that the product repeats a commit after, or does not notice.
var repeated = []tidbsim.Fault{
	tidbsim.WriteConflict, tidbsim.TxnRetryable, tidbsim.SchemaChanged, tidbsim.LockWait, tidbsim.Deadlock,
	tidbsim.BadConn,
	tidbsim.LocksLost, tidbsim.RegionMoved, tidbsim.GCTooEarly,
}

// TestCommitIsTruthfulWhateverFails injects each fault once into each way to commit. What
// Commit answers is true five minutes later, too.
func TestCommitIsTruthfulWhateverFails(t *testing.T) {
	for _, fault := range tidbsim.Faults() {
		for name, shape := range shapes {
			t.Run(fmt.Sprintf("%s, %s", fault, name), func(t *testing.T) {
				for seed := range uint64(6) {
					synctest.Test(t, func(t *testing.T) { commitUnder(t, seed, fault, shape) })
				}
			})
		}
	}
}

func commitUnder(t *testing.T, seed uint64, fault tidbsim.Fault, shape func(sqlstore.BatchWrite, int, []byte)) {
	ctx := t.Context()
	cluster := tidbsim.New(tidbsim.Config{Seed: seed, Latency: time.Millisecond})
	s, err := cluster.Open(ctx, sqlstore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	token := coder.FenceToken{Sequence: 1}
	b := s.BeginBatchWrite()
	b.PutIfNotExist(coder.FenceKey(), coder.EncodeFenceToken(token))
	b.Put([]byte("plain"), []byte("0"))
	b.Put([]byte("doomed"), []byte("x"))
	require.NoError(t, b.Commit(ctx))
	if fault == tidbsim.ConnRefused {
		cluster.BreakConns()
	}

	cluster.Inject(fault, 1)
	next := coder.FenceToken{Sequence: 2}
	b = s.BeginBatchWrite()
	b.CAS(coder.FenceKey(), coder.EncodeFenceToken(next), coder.EncodeFenceToken(token))
	b.PutIfNotExist([]byte("created"), []byte("x"))
	shape(b, 2, []byte("0"))
	err = b.Commit(ctx)
	if slices.Contains(repeated, fault) {
		require.NoError(t, err)
	}
	time.Sleep(5 * time.Minute)
	cluster.SetFaults(nil)
	values, getErr := s.MultiGet(ctx, [][]byte{coder.FenceKey(), []byte("created")})
	require.NoError(t, getErr)
	applied := bytes.Equal(values[0], coder.EncodeFenceToken(next))
	require.Equal(t, applied, values[1] != nil, "a part of the batch was written; Commit said %v", err)
	if err == nil {
		require.True(t, applied)
	} else if applied {
		require.ErrorIs(t, err, sqlstore.ErrUncertain)
	}
	require.Zero(t, cluster.Locks())
	require.Zero(t, cluster.Active())
}

// reads are the ways in which the product reads.
var reads = map[string]func(context.Context, sqlstore.Store) error{
	"get": func(ctx context.Context, s sqlstore.Store) error {
		_, err := s.Get(ctx, []byte("k"))
		return err
	},
	"multi-get": func(ctx context.Context, s sqlstore.Store) error {
		_, err := s.MultiGet(ctx, [][]byte{[]byte("k")})
		return err
	},
	"snapshot": func(ctx context.Context, s sqlstore.Store) error {
		keys := make([][]byte, 1000)
		for i := range keys {
			keys[i] = fmt.Append(nil, i)
		}
		_, err := s.MultiGet(ctx, keys)
		return err
	},
	"iteration": func(ctx context.Context, s sqlstore.Store) error {
		_, _, err := sqlstore.First(s.Iter(ctx, sqlstore.Range{Start: []byte("a"), End: []byte("z")}))
		return err
	},
	"list": func(ctx context.Context, s sqlstore.Store) error {
		_, _, err := s.List(ctx, sqlstore.ListQuery{Start: []byte("a"), End: []byte("z")})
		return err
	},
	"count": func(ctx context.Context, s sqlstore.Store) error {
		_, _, err := s.Count(ctx, []byte("a"), []byte("b"), 1)
		return err
	},
}

// TestReadsAreRepeatedWhenStorageIsBusy: a read that a region, TiKV or PD fails is repeated after
// pauses, but not for ever, and not beyond the caller's time.
func TestReadsAreRepeatedWhenStorageIsBusy(t *testing.T) {
	for _, fault := range []tidbsim.Fault{
		tidbsim.RegionUnavailable, tidbsim.PDTimeout, tidbsim.TiKVTimeout, tidbsim.TiKVBusy, tidbsim.ReadResolveTimeout,
		tidbsim.ReadSchemaChanged, tidbsim.GCTooEarly,
	} {
		for name, read := range reads {
			if fault == tidbsim.GCTooEarly && name != "snapshot" {
				continue // which the simulation injects at snapshots only
			}
			t.Run(fmt.Sprintf("%s, %s", fault, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cluster := tidbsim.New(tidbsim.Config{Seed: 1})
					s, err := cluster.Open(t.Context(), sqlstore.Options{})
					require.NoError(t, err)
					defer func() { require.NoError(t, s.Close()) }()
					b := s.BeginBatchWrite()
					b.Put([]byte("k"), []byte("v"))
					require.NoError(t, b.Commit(t.Context()))

					cluster.Inject(fault, 3)
					began := time.Now()
					require.NoError(t, read(t.Context(), s))
					require.Equal(t, 3, cluster.Struck()[fault])
					require.Positive(t, time.Since(began), "it does not pause")

					cluster.Inject(fault, 1000)
					require.ErrorIs(t, read(t.Context(), s), sqlstore.ErrUnavailable)
					require.Less(t, cluster.Struck()[fault], 20)

					cluster.Inject(fault, 1000)
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					began = time.Now()
					require.ErrorIs(t, read(ctx, s), context.DeadlineExceeded)
					require.Equal(t, 100*time.Millisecond, time.Since(began)) // simulated time
				})
			})
		}
	}
}

var leaderSeeds = flag.Uint64("tidbsim.seeds", 4, "how many seeds TestLeadersUnderRandomFaults tries")

// TestLeadersUnderRandomFaults: leaders that depose each other commit through the product's
// fence, while everything that can fail does so. Each revision was written once, by one
// leader, as a whole; every answer was true.
func TestLeadersUnderRandomFaults(t *testing.T) {
	for seed := range *leaderSeeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { leaders(t, seed) })
		})
	}
}

// try is an attempt at a revision, and what its leader was told.
type try struct {
	revision int64
	outcome  fence.Outcome
}

func leaders(t *testing.T, seed uint64) {
	const nodes, duration = 3, time.Minute
	cluster := tidbsim.New(tidbsim.Config{Seed: seed, Latency: 2 * time.Millisecond, Globals: map[string]string{
		"tidb_retry_limit": fmt.Sprint(seed % 2 * 10),
	}})
	require.NoError(t, cluster.Migrate(t.Context()))
	var mu sync.Mutex
	tries := map[string]try{}
	stores := make([]sqlstore.Store, nodes)
	for i := range stores {
		s, err := cluster.Open(t.Context(), sqlstore.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		stores[i] = s
	}
	cluster.SetFaults(tidbsim.AllFaults(0.01))
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { operate(ctx, t, cluster, rand.New(rand.NewPCG(seed, nodes))) })
	for node, s := range stores {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(node)))
			for ctx.Err() == nil {
				holder, err := fence.Take(ctx, fence.Config{
					Store: s, Log: slog.New(slog.DiscardHandler), Metrics: fence.NewMetrics(nil),
					Verify: func(coder.FenceToken) error { return nil },
					Lease:  fence.NewReadLease(false, false, func() time.Duration { return time.Since(time.Unix(0, 0)) }),
				})
				if err != nil {
					time.Sleep(time.Duration(rnd.IntN(50)) * time.Millisecond)
					continue
				}
				for ctx.Err() == nil {
					id := fmt.Sprintf("%d/%d/%d", node, rnd.Uint64(), holder.Value().Revision+1)
					next := holder.Next(holder.Value().Revision + 1)
					transaction := rnd.IntN(2) == 0
					outcome, err := holder.Commit(ctx, next, time.Second, false, func(w sqlstore.BatchWrite) {
						w.PutIfNotExist(fmt.Appendf(nil, "log %08d", next.Revision), []byte(id))
						if transaction {
							w.Put([]byte("last"), []byte(id))
						}
						w.PutIfNotExist(fmt.Appendf(nil, "zlog %08d", next.Revision), []byte(id))
					})
					mu.Lock()
					tries[id] = try{next.Revision, outcome}
					mu.Unlock()
					if outcome == fence.Unknown || errors.Is(err, fence.ErrDeposed) || rnd.IntN(100) == 0 {
						break
					}
				}
				time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	cluster.SetFaults(nil)
	time.Sleep(5 * time.Minute) // what was on the way has arrived
	judge(t, stores[0], tries)
	require.Zero(t, cluster.Locks())
	require.Zero(t, cluster.Active())
	struck, kinds := 0, cluster.Struck()
	for _, n := range kinds {
		struck += n
	}
	t.Logf("%d tries, %d faults of %d kinds", len(tries), struck, len(kinds))
	require.Greater(t, len(kinds), 15)
}

// operate does, every few seconds, what happens to a whole cluster.
func operate(ctx context.Context, t *testing.T, cluster *tidbsim.Cluster, rnd *rand.Rand) {
	for {
		select {
		case <-time.After(time.Duration(rnd.IntN(4000)) * time.Millisecond):
		case <-ctx.Done():
			return
		}
		switch rnd.IntN(5) {
		case 0:
			cluster.BreakConns()
		case 1:
			cluster.LoseLocks()
		case 2:
			cluster.ChangeSchema()
		case 3:
			if err := cluster.Split([]byte("log 00000100"), fmt.Appendf(nil, "log %08d", 101+rnd.IntN(2000)),
				[]byte("zlog")); err != nil {
				t.Error(err)
			}
		default:
			cluster.Stop(rnd.IntN(2) == 0)
			time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
			cluster.Start()
		}
	}
}

func judge(t *testing.T, s sqlstore.Store, tries map[string]try) {
	ctx := t.Context()
	raw, err := s.Get(ctx, coder.FenceKey())
	require.NoError(t, err)
	token, err := coder.DecodeFenceToken(raw)
	require.NoError(t, err)
	written := map[string]int64{}
	for rev := int64(2); rev <= token.Revision; rev++ {
		values, err := s.MultiGet(ctx, [][]byte{fmt.Appendf(nil, "log %08d", rev), fmt.Appendf(nil, "zlog %08d", rev)})
		require.NoError(t, err)
		require.NotNil(t, values[0], "revision %d is missing", rev)
		require.Equal(t, values[0], values[1], "revision %d was written in parts", rev)
		written[string(values[0])] = rev
	}
	acknowledged := 0
	for id, try := range tries {
		rev, ok := written[id]
		switch try.outcome {
		case fence.Written:
			acknowledged++
			require.True(t, ok && rev == try.revision, "revision %d of %s was acknowledged and lost", try.revision, id)
		case fence.NotWritten:
			require.False(t, ok, "revision %d of %s was refused and written", try.revision, id)
		case fence.Unknown:
		}
	}
	rows := 0
	for _, err := range s.Iter(ctx, sqlstore.Range{Start: []byte("log "), End: []byte("log!")}) {
		require.NoError(t, err)
		rows++
	}
	require.EqualValues(t, token.Revision-1, rows, "rows of revisions that the token does not have")
	require.Greater(t, acknowledged, 50)
}
