package siege

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/integration/internal/load"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	clients = 4
	// oldStates is how many old revisions are read again after each round.
	oldStates = 5
)

// everything is the range of all keys.
var everything = history.Range{Key: "\x00", End: "\x00"}

// Siege is rounds of load, each followed by a verification of all answers, and watches that stay open through all of
// them. Its methods end the test when they fail, so only the test's own goroutine may call them.
type Siege struct {
	// Load makes the requests of the round.
	Load *load.Load
	// Rnd draws what the test does.
	Rnd *rand.Rand

	recorder *history.Recorder
	verifier *history.Verifier
	config   load.Config
	watches  []*load.Watch

	acked sync.Mutex
	times []time.Time // of acknowledged writes, in order
	stop  context.CancelFunc
	done  sync.WaitGroup

	t    testing.TB
	wait time.Duration // bounds each condition that must become true eventually
}

// newSiege prepares a siege of an empty store.
func newSiege(t testing.TB, client func() *clientv3.Client, workers int, timeout, wait time.Duration) *Siege {
	t.Helper()
	seed := harness.Seed()
	t.Logf("replay the requests with -seed=%d (their interleaving is the machine's)", seed)
	s := &Siege{t: t, wait: wait, recorder: history.NewRecorder(), Rnd: rand.New(rand.NewPCG(seed, 0))}
	s.verifier = history.NewVerifier(s.recorder, 1)
	s.config = load.Config{Recorder: s.recorder, Workers: workers, Seed: seed, RequestTimeout: timeout, Oldest: 1}
	for range clients {
		s.config.Clients = append(s.config.Clients, client())
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(t.Context())
	s.done.Go(func() { s.observe(ctx) })
	t.Cleanup(func() { s.stop(); s.done.Wait() })
	return s
}

// OfNode prepares a siege of an empty node, without a load.
func OfNode(t testing.TB, node *harness.Node) *Siege {
	t.Helper()
	s := newSiege(t, node.Client, 12, 10*time.Second, 5*time.Minute)
	watcher, own := node.Client(), load.Prefix(0)
	s.follow(watcher, everything, true)
	s.follow(watcher, history.Range{Key: own, End: clientv3.GetPrefixRangeEnd(own)}, false)
	s.follow(watcher, history.Range{Key: "/counter/0"}, true)
	return s
}

// Lay starts a load of the given number of workers on an empty cluster. Each worker's
// client knows all nodes. Each node has watches, and one watch may switch between nodes.
// wait bounds each request and each condition that must become true eventually.
func Lay(t testing.TB, c *harness.Cluster, workers int, wait time.Duration) *Siege {
	t.Helper()
	s := newSiege(t, c.Client, workers, wait, wait)
	s.follow(c.Client(), everything, true)
	for n := range c.Size() {
		s.follow(c.Node(n).Client(), everything, n == 0)
	}
	s.begin()
	return s
}

func (s *Siege) follow(c *clientv3.Client, r history.Range, prevKV bool) {
	w := load.Follow(s.t.Context(), c, r, 2, prevKV)
	s.watches = append(s.watches, w)
	s.t.Cleanup(w.Stop)
}

// observe notes when writes were acknowledged.
func (s *Siege) observe(ctx context.Context) {
	for n := s.recorder.Acked() + 1; s.recorder.AwaitAcked(ctx, n) == nil; n = s.recorder.Acked() + 1 {
		s.acked.Lock()
		s.times = append(s.times, time.Now())
		s.acked.Unlock()
	}
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

// Progress waits until n more writes were acknowledged, however long the store is away in between.
func (s *Siege) Progress(n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), s.wait)
	defer cancel()
	require.NoError(s.t, s.recorder.AwaitAcked(ctx, s.recorder.Acked()+n), "after %d writes: %s", s.recorder.Acked(),
		s.Load.Describe())
}

// Under runs a round: load, and trouble during it. The store must be back when trouble returns.
func (s *Siege) Under(trouble func()) {
	s.t.Helper()
	s.begin()
	s.Progress(100 + s.Rnd.IntN(200))
	trouble()
	s.Progress(100)
	s.End()
}

func (s *Siege) begin() {
	s.config.Round++
	s.Load = load.Run(s.t.Context(), s.config)
}

// End ends the load and verifies all answers and all events of watches.
func (s *Siege) End() {
	s.t.Helper()
	s.Load.Stop()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*s.wait)
	defer cancel()
	wrong, err := s.verifier.Settle(ctx, s.config.Clients[0], s.Rnd, s.config.Oldest, oldStates)
	require.NoError(s.t, err)
	require.Empty(s.t, wrong)
	for i, w := range s.watches {
		last := s.verifier.LastIn(w.Range)
		require.NoError(s.t, w.Await(ctx, last))
		require.Empty(s.t, s.verifier.CheckWatch(w.Range, w.Start, last, w.PrevKV, w.Seen()), "watch %d", i)
		require.NoError(s.t, w.Err())
	}
	s.t.Logf("round %d: %d writes acknowledged, %d revisions; of %d unanswered requests %d took effect; errors: %s",
		s.config.Round, s.recorder.Acked(), s.verifier.Revision(), s.verifier.Unknown, s.verifier.UnknownFound,
		s.Load.Describe())
	for _, c := range s.Load.Errors() {
		require.Contains(s.t, []codes.Code{codes.Unavailable, codes.DeadlineExceeded}, c,
			"requests may only fail with these: %s", s.Load.Describe())
	}
}

// UnderCompaction is Under while the history of the rounds before, of which there is one, is discarded. The first
// attempt may fail; it must succeed when the trouble is over.
func (s *Siege) UnderCompaction(trouble func()) {
	s.t.Helper()
	s.config.Oldest = s.verifier.Revision()
	ctx, cancel := context.WithTimeout(s.t.Context(), s.wait)
	defer cancel()
	c, oldest := s.config.Clients[0], s.config.Oldest
	s.Under(func() {
		// A watch that takes up again where it was, below the compaction, would be cancelled, and rightly so.
		for _, w := range s.watches {
			require.NoError(s.t, w.Await(ctx, oldest))
		}
		first := make(chan error, 1)
		go func() {
			_, err := c.Compact(ctx, oldest, clientv3.WithCompactPhysical())
			first <- err
		}()
		trouble()
		if err := <-first; err != nil {
			eventually.Nil(s.t, s.wait, func(ctx context.Context) error {
				if _, err = c.Compact(ctx, oldest); errors.Is(err, rpctypes.ErrCompacted) {
					return nil
				}
				return err
			})
		}
		_, err := c.Get(ctx, "a", clientv3.WithRev(oldest-1))
		require.ErrorIs(s.t, err, rpctypes.ErrCompacted)
	})
}
