package cluster

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// TestALeaderThatRefusesConnectionsStays: two members advertise peer URLs at which nothing
// listens. The leader lives, keeps the lock, and writes go on.
func TestALeaderThatRefusesConnectionsStays(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 0)
	for _, name := range []string{"a", "b"} {
		// A busy machine must not make the leader's answer late.
		g.join(name, freeAddress(t), func(c *Config) { c.deathSilence = patience }).door.close()
	}
	leader := g.leader()
	term := leader.Backend().Status().Term
	follower := g.others(leader)[0]
	verdicts := func(verdict string) float64 {
		return testutil.ToFloat64(follower.metrics.suspicions.WithLabelValues(verdict))
	}
	writes := 0
	until(t, "the follower to ask twice", func() bool {
		writes++
		mustPut(t, leader, "k", fmt.Sprint(writes))
		return verdicts(verdictAlive) >= 2
	})
	t.Logf("%d writes", writes)
	require.True(t, leader.Backend().Leading())
	require.Equal(t, term, leader.Backend().Status().Term)
	require.Zero(t, verdicts(verdictGone))

	// The follower is of use as far as it needs no connection: it reads the log.
	until(t, "the follower to show the last write", func() bool {
		value, _, err := get(t.Context(), follower, "k", false)
		return err == nil && value == fmt.Sprint(writes)
	})
}

// TestALeaderThatRefusesConnectionsAndDoesNotAnswerIsReplaced: its process lives for
// itself, but reaches neither its peers nor the database.
func TestALeaderThatRefusesConnectionsAndDoesNotAnswerIsReplaced(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 2)
	old := g.leader()
	mustPut(t, old, "k", "1")
	young := g.others(old)[0]
	old.door.close()
	old.line.hold(nil)
	until(t, "the other one to lead", young.Backend().Leading)
	mustPut(t, young, "k", "2")
	require.EqualValues(t, 1, testutil.ToFloat64(young.metrics.suspicions.WithLabelValues(verdictGone)))
	old.line.restore()
	until(t, "the old one to follow", func() bool { return !old.Backend().Leading() })
}
