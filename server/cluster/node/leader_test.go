package node

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// One of three nodes leads, and all report the same leader and term.
func TestOneOfThreeLeads(t *testing.T) {
	t.Parallel()
	began := time.Now()
	g := newGroup(t, newMemory(t), slow, 3)
	leads := g.leader()
	report(t, "three started, one leads", began)
	require.NotZero(t, leads.Replica().Status().Term)
	for _, m := range g.others(leads) {
		require.False(t, m.Replica().Leading())
		require.Equal(t, leads.id(), m.Replica().Leader())
		_, err := m.Replica().Txn(t.Context(), auth.System, put("k", "v"), true)
		require.True(t, turnedAway(err), "a follower's write: %v", err)
	}
	conn, self, err := Connection{leads.Node}.Leader(t.Context())
	require.NoError(t, err)
	require.True(t, self)
	require.Nil(t, conn)
}

// Linearizable reads of followers see acknowledged writes at once. Serializable reads never
// return an older revision than before.
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

// A leader does not read the log: it shows a commit when the commit is answered, although the
// log rows have it before.
func TestLeaderShowsCommitsOnlyOnceAnswered(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 2)
	leads := g.leader()
	watcher := watchAll(t, leads)
	leads.line.mu.Lock()
	leads.line.lag = 4 * timing.ReadLog
	leads.line.mu.Unlock()
	written := make(chan error, 1)
	go func() {
		_, err := leads.Replica().Txn(context.Background(), auth.System, put("k", "1"), true)
		written <- err
	}()
	eventually.True(t, "the commit", leads.line.lagging.Load)
	for {
		shown := leads.Replica().Revision()
		if !leads.line.lagging.Load() {
			break
		}
		require.Equal(t, int64(1), shown)
	}
	require.NoError(t, <-written)
	watcher.reach(2)
}

// Followers learn of the alarms that the leader raised.
func TestFollowersLearnOfAlarms(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 2)
	leads := g.leader()
	alarm := quota.Alarm{MemberID: leads.id(), Type: quota.AlarmNoSpace}
	for _, raised := range []bool{true, false} {
		var err error
		if raised {
			_, err = leads.Replica().Alarms.Raise(t.Context(), auth.System, alarm)
		} else {
			_, err = leads.Replica().Alarms.Disarm(t.Context(), auth.System, alarm)
		}
		require.NoError(t, err)
		for _, m := range g.all() {
			eventually.True(t, "the alarm to be known", func() bool { return (len(m.Replica().Alarms.All()) == 1) == raised })
		}
	}
}
