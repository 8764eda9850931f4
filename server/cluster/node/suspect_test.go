package node

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
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
	term := leader.Replica().Status().Term
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
	require.True(t, leader.Replica().Leading())
	require.Equal(t, term, leader.Replica().Status().Term)
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
	eventually.True(t, "the other one to lead", young.Replica().Leading)
	mustPut(t, young, "k", "2")
	require.EqualValues(t, 1, testutil.ToFloat64(young.metrics.suspicions.WithLabelValues(verdictGone)))
	old.line.restore()
	eventually.True(t, "the old one to follow", func() bool { return !old.Replica().Leading() })
}

// askedStore counts how often a row is written.
type askedStore struct {
	sqlstore.Store
	row []byte
	n   atomic.Int64
}

func (s *askedStore) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if b.Writes(s.row) {
			s.n.Add(1)
		}
		return b.BatchWrite.Commit(ctx)
	})
}

// A leader that looks for challenges rarely looks more often once a feed of it has ended. So a follower that had the
// feed need not wait as long for an answer as the leader's row says.
func TestFollowerThatHadAFeedSuspectsSooner(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 1)
	old := g.leader()
	var store *askedStore
	young := g.join("b", freeAddress(t), func(c *Config) {
		store = &askedStore{Store: c.Store, row: coder.EncodeMemberKey(old.name)}
		c.Store = store
	})
	mustPut(t, old, "k", "1")
	requireGet(t, young, "k", "1")
	requireFed(t, young)
	eventually.True(t, "the leader's row to say that it looks rarely", func() bool {
		members, err := young.members.Members(t.Context())
		require.NoError(t, err)
		return slices.ContainsFunc(members, func(m member.Member) bool { return m.ID == old.id() && m.Heartbeat > 0 })
	})
	require.Zero(t, store.n.Load())
	old.line.cutOff()
	g.kill(old)
	eventually.True(t, "the other one to lead", young.Replica().Leading)
	require.EqualValues(t, 1, testutil.ToFloat64(young.metrics.suspicions.WithLabelValues(verdictGone)))
	require.EqualValues(t, timing.Challenges+1, store.n.Load(), "challenges, and one with the swap of the lock")
}
