package replicated

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/cluster"
	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/integration/internal/load"
)

const (
	workers = 8
	clients = 4
	// oldStates is how many old revisions are read again afterwards.
	oldStates = 5
)

// siege is a cluster under load, with watches on each node, and somebody who
// writes without a pause, so that the first moment at which that can be done is
// found at once.
type siege struct {
	t        *testing.T
	recorder *history.Recorder
	client   *clientv3.Client
	load     *load.Load
	watches  []*load.Watch
	rnd      *rand.Rand

	acked sync.Mutex
	times []time.Time // when writes were acknowledged, in order
	stop  context.CancelFunc
	done  sync.WaitGroup
}

func besiege(t *testing.T, c *cluster.Cluster) *siege {
	t.Helper()
	seed := harness.Seed(t)
	t.Logf("replay the requests with SQLBRAIN_SEED=%d (their interleaving is the machine's)", seed)
	s := &siege{t: t, recorder: history.NewRecorder(), client: c.Client(), rnd: rand.New(rand.NewPCG(seed, 0))}
	for n := range c.Size() {
		w := load.Follow(t.Context(), c.Node(n).Client(), history.Range{Key: "\x00", End: "\x00"}, 2, n == 0)
		s.watches = append(s.watches, w)
		t.Cleanup(w.Stop)
	}
	var all []*clientv3.Client
	for range clients {
		all = append(all, c.Client())
	}
	s.load = load.Run(t.Context(), load.Config{
		Recorder: s.recorder, Clients: all, Workers: workers, Seed: seed, RequestTimeout: wait, Oldest: 1,
	})
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	t.Cleanup(stop)
	s.done.Go(func() { s.observe(ctx) })
	return s
}

// observe notes when acknowledged writes were.
func (s *siege) observe(ctx context.Context) {
	for n := s.recorder.Acked() + 1; s.recorder.AwaitAcked(ctx, n) == nil; n = s.recorder.Acked() + 1 {
		s.acked.Lock()
		s.times = append(s.times, time.Now())
		s.acked.Unlock()
	}
}

// progress waits until n more writes were acknowledged.
func (s *siege) progress(n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), wait)
	defer cancel()
	require.NoError(s.t, s.recorder.AwaitAcked(ctx, s.recorder.Acked()+n), "after %d writes: %s", s.recorder.Acked(), s.load.Describe())
}

// gap is the longest time without an acknowledged write since a moment.
func (s *siege) gap(since time.Time) (longest time.Duration) {
	s.acked.Lock()
	defer s.acked.Unlock()
	at, _ := slices.BinarySearchFunc(s.times, since, func(t, s time.Time) int { return t.Compare(s) })
	for i := max(1, at); i < len(s.times); i++ {
		longest = max(longest, s.times[i].Sub(s.times[i-1]))
	}
	return longest
}

// end ends the load and verifies all that clients and watches were told.
func (s *siege) end() {
	s.t.Helper()
	s.load.Stop()
	s.stop()
	s.done.Wait()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*wait)
	defer cancel()
	v := history.NewVerifier(s.recorder, 1)
	wrong, err := v.Settle(ctx, s.client, s.rnd, 1, oldStates)
	require.NoError(s.t, err)
	require.Empty(s.t, wrong)
	for i, w := range s.watches {
		last := v.LastIn(w.Range)
		require.NoError(s.t, w.Await(ctx, last))
		require.Empty(s.t, v.CheckWatch(w.Range, w.Start, last, w.PrevKV, w.Seen()), "watch %d", i)
		require.NoError(s.t, w.Err())
	}
	s.t.Logf("%d writes acknowledged, %d revisions; of %d unanswered requests %d took effect; errors: %s",
		s.recorder.Acked(), v.Revision(), v.Unknown, v.UnknownFound, s.load.Describe())
}

// report tells the median and the longest of the gaps.
func report(t *testing.T, what string, gaps []time.Duration) {
	t.Helper()
	slices.Sort(gaps)
	t.Logf("%s: %s (median), %s (longest), %d rounds", what,
		gaps[len(gaps)/2].Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond), len(gaps))
}

func nodesOn(t *testing.T, datastore func(i int) string) *cluster.Cluster {
	t.Helper()
	harness.NeedsDatabase(t)
	return cluster.Start(t, cluster.Config{Datastore: datastore})
}
