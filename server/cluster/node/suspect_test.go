package node

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// Two members advertise peer URLs at which nothing listens. The leader runs, keeps the lock,
// and continues to write.
func TestLeaderThatAnswersChallengesKeepsTheLock(t *testing.T) {
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
	eventually.True(t, "the follower to ask twice", func() bool {
		writes++
		mustPut(t, leader, "k", fmt.Sprint(writes))
		return verdicts(verdictAlive) >= 2
	})
	t.Logf("%d writes", writes)
	require.True(t, leader.Backend().Leading())
	require.Equal(t, term, leader.Backend().Status().Term)
	require.Zero(t, verdicts(verdictGone))

	// The follower is of use as far as it needs no connection: it reads the log.
	eventually.True(t, "the follower to show the last write", func() bool {
		value, _, err := get(t.Context(), follower, "k", false)
		return err == nil && value == fmt.Sprint(writes)
	})
}

// The leader's process runs, but reaches neither its peers nor the database.
func TestLeaderThatAnswersNoChallengeIsReplaced(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 2)
	old := g.leader()
	mustPut(t, old, "k", "1")
	young := g.others(old)[0]
	old.door.close()
	old.line.hold(nil)
	eventually.True(t, "the other one to lead", young.Backend().Leading)
	mustPut(t, young, "k", "2")
	require.EqualValues(t, 1, testutil.ToFloat64(young.metrics.suspicions.WithLabelValues(verdictGone)))
	old.line.restore()
	eventually.True(t, "the old one to follow", func() bool { return !old.Backend().Leading() })
}
