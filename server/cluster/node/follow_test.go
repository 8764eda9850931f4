package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// A follower whose leader does not answer its peers reads the log, and after a time no longer
// reports a leader.
func TestAFollowerWithoutAFeedReadsTheLog(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 2)
	leads := g.leader()
	follower := g.others(leads)[0]
	watcher := watchAll(t, follower)
	mustPut(t, leads, "k", "0")
	requireGet(t, follower, "k", "0")
	leads.door.jam()
	began := time.Now()
	for i := range 5 {
		since := time.Now()
		watcher.reach(mustPut(t, leads, "k", fmt.Sprint(i)))
		report(t, "a follower without a feed was told", since)
	}
	eventually.True(t, "the follower to know of no leader", func() bool { return follower.Replica().Leader() == 0 })
	report(t, "a follower that hears nothing says that there is no leader", began)
	require.Error(t, follower.Replica().Status().NotServing)
	require.True(t, leads.Replica().Leading())

	leads.door.unjam()
	require.Same(t, leads, g.leader())
	mustPut(t, leads, "k", "end")
	requireGet(t, follower, "k", "end")
	watcher.reach(leads.Replica().Revision())
}

// requireFed waits until the follower hears the leader's feed.
func requireFed(t *testing.T, follower *testNode) {
	t.Helper()
	since := follower.heard.Load()
	eventually.True(t, "the feed", func() bool { return follower.heard.Load() > since })
}

// A follower learns of commits from the leader's feed, and not only from the log.
func TestAFollowerIsFedByTheLeader(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 2)
	leads := g.leader()
	follower := g.others(leads)[0]
	requireGet(t, follower, "k", "")
	requireFed(t, follower)
	// The database is not needed to learn what the leader commits.
	follower.line.hold(nil)
	defer follower.line.restore()
	rev := mustPut(t, leads, "k", "1")
	eventually.True(t, "the follower to be told by the leader",
		func() bool { return follower.Replica().Revision() == rev })
}

// A follower compares what it has shown with the table again once the leader may be another one: in a table that lost
// its newest commits, another leader may have the same term.
func TestFollowerComparesAgainAfterAFeed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, follower, leads *testNode){
		"another leader": func(_ *testing.T, follower, leads *testNode) {
			follower.line.cutOff() // earlier than the feed begins anew, which has it compare
			follower.observed(leads.id())
		},
		"the end of a feed": func(t *testing.T, follower, leads *testNode) {
			for fed, deadline := false, 50*time.Millisecond; !fed; deadline *= 2 {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				fed, _ = follower.followFeed(ctx, leads.id())
				cancel()
			}
			follower.line.cutOff()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, newMemory(t), slow, 2)
			leads := g.leader()
			follower := g.others(leads)[0]
			mustPut(t, leads, "k", "1")
			requireGet(t, follower, "k", "1")
			requireFed(t, follower)
			term := follower.Replica().Status().Term
			defer follower.line.restore()
			eventually.Nil(t, deadline, func(ctx context.Context) error { // a busy machine may end the feed
				if err := follower.Replica().Divergence.Check(ctx, term, false); err != nil {
					return err
				}
				follower.line.cutOff() // without the table it can only trust the last comparison
				defer follower.line.restore()
				return follower.Replica().Divergence.Check(ctx, term, false)
			})
			change(t, follower, leads)
			require.Error(t, follower.Replica().Divergence.Check(t.Context(), term, false))
		})
	}
}
