package cluster

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOneOfThreeLeads: one leads, and all say which, in which term.
func TestOneOfThreeLeads(t *testing.T) {
	t.Parallel()
	began := time.Now()
	g := newGroup(t, newMemory(t), slow, 3)
	leads := g.leader()
	report(t, "three started, one leads", began)
	require.NotZero(t, leads.Backend().Status().Term)
	for _, m := range g.others(leads) {
		require.False(t, m.Backend().Leading())
		require.Equal(t, leads.id(), m.Backend().Leader())
		_, err := m.Backend().Txn(t.Context(), put("k", "v"), true)
		require.True(t, turnedAway(err), "a follower's write: %v", err)
	}
	conn, self, err := Connection{leads.Node}.Leader(t.Context())
	require.NoError(t, err)
	require.True(t, self)
	require.Nil(t, conn)
}

// TestFollowersReadWhatTheLeaderAcknowledged: at once, where a read is linearizable;
// one that is not never goes back.
func TestFollowersReadWhatTheLeaderAcknowledged(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 3)
	leads := g.leader()
	var readers sync.WaitGroup
	over := make(chan struct{})
	for _, m := range g.others(leads) {
		readers.Go(func() {
			var last int64
			pace := time.NewTicker(time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-over:
					return
				case <-pace.C:
				}
				_, rev, err := get(t.Context(), m, "k", false)
				if err != nil || rev < last {
					t.Errorf("%s: a serializable read at revision %d behind one at %d, %v", m.name, rev, last, err)
					return
				}
				last = rev
			}
		})
	}
	for i := range 30 {
		value := fmt.Sprint(i)
		mustPut(t, leads, "k", value)
		for _, m := range g.others(leads) {
			requireGet(t, m, "k", value)
		}
	}
	close(over)
	readers.Wait()
}
