package siege

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/integration/internal/load"
)

const (
	clients = 4
	// oldStates is how many old revisions are read again at the end.
	oldStates = 5
)

// Siege is a cluster under load, with watches of it. Its methods end the test when
// they fail, so only the test's own goroutine may call them.
type Siege struct {
	// Recorder records each request and its answer.
	Recorder *history.Recorder
	// Load makes the requests.
	Load *load.Load

	acked sync.Mutex
	times []time.Time // of acknowledged writes, in order
	stop  context.CancelFunc
	done  sync.WaitGroup

	t       testing.TB
	wait    time.Duration
	client  *clientv3.Client
	watches []*load.Watch
	rnd     *rand.Rand
}

// Lay starts a load of the given number of workers on an empty cluster. Each worker's
// client knows all nodes. Each node has watches, and one watch may switch between nodes.
// wait bounds each request and each condition that must become true eventually.
func Lay(t testing.TB, c *harness.Cluster, workers int, wait time.Duration) *Siege {
	t.Helper()
	seed := harness.Seed()
	t.Logf("replay the requests with -seed=%d (their interleaving is the machine's)", seed)
	s := &Siege{t: t, wait: wait, Recorder: history.NewRecorder(), client: c.Client(), rnd: rand.New(rand.NewPCG(seed, 0))}
	s.follow(c.Client(), true)
	for n := range c.Size() {
		s.follow(c.Node(n).Client(), n == 0)
	}
	var all []*clientv3.Client
	for range clients {
		all = append(all, c.Client())
	}
	s.Load = load.Run(t.Context(), load.Config{
		Recorder: s.Recorder, Clients: all, Workers: workers, Seed: seed, RequestTimeout: wait, Oldest: 1,
	})
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	s.done.Go(func() { s.observe(ctx) })
	t.Cleanup(s.ended)
	return s
}

// observe notes when writes were acknowledged.
func (s *Siege) observe(ctx context.Context) {
	for n := s.Recorder.Acked() + 1; s.Recorder.AwaitAcked(ctx, n) == nil; n = s.Recorder.Acked() + 1 {
		s.acked.Lock()
		s.times = append(s.times, time.Now())
		s.acked.Unlock()
	}
}

func (s *Siege) ended() {
	s.stop()
	s.done.Wait()
}

// Gap is the longest time without an acknowledged write since a moment.
func (s *Siege) Gap(since time.Time) (longest time.Duration) {
	s.acked.Lock()
	defer s.acked.Unlock()
	at, _ := slices.BinarySearchFunc(s.times, since, func(t, s time.Time) int { return t.Compare(s) })
	for i := max(1, at); i < len(s.times); i++ {
		longest = max(longest, s.times[i].Sub(s.times[i-1]))
	}
	return longest
}

func (s *Siege) follow(c *clientv3.Client, prevKV bool) {
	w := load.Follow(s.t.Context(), c, history.Range{Key: "\x00", End: "\x00"}, 2, prevKV)
	s.watches = append(s.watches, w)
	s.t.Cleanup(w.Stop)
}

// Progress waits until n more writes were acknowledged.
func (s *Siege) Progress(n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), s.wait)
	defer cancel()
	require.NoError(s.t, s.Recorder.AwaitAcked(ctx, s.Recorder.Acked()+n), "after %d writes: %s", s.Recorder.Acked(),
		s.Load.Describe())
}

// End ends the load and verifies all answers and all events of watches.
func (s *Siege) End() {
	s.t.Helper()
	s.Load.Stop()
	s.ended()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*s.wait)
	defer cancel()
	v := history.NewVerifier(s.Recorder, 1)
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
		s.Recorder.Acked(), v.Revision(), v.Unknown, v.UnknownFound, s.Load.Describe())
}
