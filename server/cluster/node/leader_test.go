package node

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

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
