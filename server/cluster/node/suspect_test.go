package node

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// results returns how often the member has found that of a leader that it challenged.
func (m *testNode) results(result string) (n float64) {
	m.t.Helper()
	families, err := m.registry.Gather()
	require.NoError(m.t, err)
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if f.GetName() == "sqlbrain_leader_suspicions_total" && metric.GetLabel()[0].GetValue() == result {
				n = metric.GetCounter().GetValue()
			}
		}
	}
	return n
}

// Two members do not answer at their peer URLs. The leader runs, keeps the lock, and continues to write.
func TestLeaderThatAnswersChallengesKeepsTheLock(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 0)
	for _, name := range []string{"a", "b"} {
		g.join(name, freeAddress(t)).door.jam()
	}
	leader := g.leader()
	term := leader.Replica().Status().Term
	follower := g.others(leader)[0]
	writes := 0
	eventually.True(t, "the follower to ask", func() bool {
		writes++
		mustPut(t, leader, "k", fmt.Sprint(writes))
		return follower.results("alive") >= 1
	})
	t.Logf("%d writes", writes)
	require.True(t, leader.Replica().Leading())
	require.Equal(t, term, leader.Replica().Status().Term)
	require.Zero(t, follower.results("gone"))

	// The follower is of use as far as it needs no connection: it reads the log.
	eventually.True(t, "the follower to show the last write", func() bool {
		value, _, err := get(t.Context(), follower, "k", false)
		return err == nil && value == fmt.Sprint(writes)
	})
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

// A leader that polls rarely polls often once a feed of it has ended. So a follower that had the feed need not wait for
// long, and one challenge is enough.
func TestFollowerThatHadAFeedReplacesTheLeaderSoon(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 1)
	old := g.leader()
	var store *askedStore
	young := g.join("b", freeAddress(t), func(c *Config) {
		store = &askedStore{Store: c.Store, row: coder.LockKey()}
		c.Store = store
	})
	mustPut(t, old, "k", "1")
	requireGet(t, young, "k", "1")
	requireFed(t, young)
	before := store.n.Load()
	old.line.cutOff()
	g.kill(old)
	eventually.True(t, "the other one to lead", young.Replica().Leading)
	require.EqualValues(t, 1, young.results("gone"))
	require.EqualValues(t, 2, store.n.Load()-before, "the challenge, and the swap of the lock")
}
