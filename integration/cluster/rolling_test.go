package cluster

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/cluster"
	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/integration/internal/load"
)

const (
	workers = 12
	clients = 4
	// oldStates is how many old revisions are read again afterwards.
	oldStates = 5
)

// TestRollingRestart restarts all nodes, one after the other, under load of
// clients that know all of them: none of their requests fails, everything they
// were told is so, and their watches miss nothing.
func TestRollingRestart(t *testing.T) {
	c := cluster.Start(t, cluster.Config{})
	s := besiege(t, c)
	for range harness.Number(t, "SQLBRAIN_ROLLING_ROUNDS", 1, 20) {
		for n := range c.Size() {
			s.progress(100)
			c.Stop(n)
			s.progress(100)
			c.Start(n)
		}
	}
	s.progress(100)
	s.end()
	if harness.TargetIsEtcd() {
		return // where writes under way when the leader hands over may time out
	}
	require.Empty(t, s.load.Errors(), "requests failed that the client was not to see: %s", s.load.Describe())
}

// TestKilledNodes kills all nodes, one after the other, the leader first each
// time: requests may fail, and everything the clients were told is so.
func TestKilledNodes(t *testing.T) {
	c := cluster.Start(t, cluster.Config{})
	s := besiege(t, c)
	for range harness.Number(t, "SQLBRAIN_CRASH_ROUNDS", 3, 50) {
		n := c.Leader()
		s.progress(100)
		c.Kill(n)
		s.progress(100)
		c.Start(n)
	}
	s.progress(100)
	s.end()
}

// siege is a cluster under load, with watches of it.
type siege struct {
	t        *testing.T
	recorder *history.Recorder
	client   *clientv3.Client
	load     *load.Load
	watches  []*load.Watch
	rnd      *rand.Rand
}

// besiege starts load on an empty cluster. Each client knows all nodes; there
// are watches on each node, and one that may go from node to node.
func besiege(t *testing.T, c *cluster.Cluster) *siege {
	t.Helper()
	seed := harness.Seed(t)
	t.Logf("replay the requests with SQLBRAIN_SEED=%d (their interleaving is the machine's)", seed)
	s := &siege{t: t, recorder: history.NewRecorder(), client: c.Client(), rnd: rand.New(rand.NewPCG(seed, 0))}
	s.follow(c.Client(), true)
	for n := range c.Size() {
		s.follow(c.Node(n).Client(), n == 0)
	}
	var all []*clientv3.Client
	for range clients {
		all = append(all, c.Client())
	}
	s.load = load.Run(t.Context(), load.Config{
		Recorder: s.recorder, Clients: all, Workers: workers, Seed: seed, RequestTimeout: wait, Oldest: 1,
	})
	return s
}

func (s *siege) follow(c *clientv3.Client, prevKV bool) {
	w := load.Follow(s.t.Context(), c, history.Range{Key: "\x00", End: "\x00"}, 2, prevKV)
	s.watches = append(s.watches, w)
	s.t.Cleanup(w.Stop)
}

// progress waits until n more writes were acknowledged.
func (s *siege) progress(n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), wait)
	defer cancel()
	require.NoError(s.t, s.recorder.AwaitAcked(ctx, s.recorder.Acked()+n))
}

// end ends the load and verifies all that clients and watches were told.
func (s *siege) end() {
	s.t.Helper()
	s.load.Stop()
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
