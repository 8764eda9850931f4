package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// TestWatchersAreToldEverythingOnce, in order, with what was replaced, whichever
// node they are on and whatever becomes of the leader.
func TestWatchersAreToldEverythingOnce(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) { t.Parallel(); tour(t, newMemory(t)) })
	for _, p := range enginetest.Products() {
		t.Run(string(p), func(t *testing.T) { t.Parallel(); tour(t, openURL(t, p.Database(t))) })
	}
}

func tour(t *testing.T, store sqlstore.Store) {
	g := newGroup(t, store, slow, 3)
	load := g.load()
	watchers := map[*member]*chronicle{}
	for _, m := range g.all() {
		watchers[m] = watchAll(t, m)
	}
	told := func() (all []*chronicle) {
		for _, m := range g.all() {
			all = append(all, watchers[m])
		}
		return all
	}
	join := func(m *member) {
		back := g.join(m.name, m.door.address)
		watchers[back] = watchAll(t, back)
	}
	step := func(what string) {
		load.more(20)
		load.check(told()...)
		t.Logf("%s: revision %d", what, load.newest())
	}
	step("from the start")

	leads := g.leader()
	require.NoError(t, leads.MoveLeader(t.Context(), g.others(leads)[0].id()))
	step("the leadership was moved")

	leads = g.leader()
	watchers[leads].end()
	g.leave(leads)
	step("the leader stopped")
	join(leads)
	step("and is back")

	leads = g.leader()
	watchers[leads].end()
	g.kill(leads)
	step("the leader was killed")
	join(leads)
	step("and is back")

	// The others reach the leader no more; it reaches the database, and goes on.
	g.leader().cutFeeds(func() { step("the feeds were cut") })
	step("the feeds work again")
	load.stop(told()...)
}

// cutFeeds makes the node hang for its peers alone while f runs.
func (m *member) cutFeeds(f func()) {
	m.door.jam()
	defer m.door.unjam()
	f()
}
