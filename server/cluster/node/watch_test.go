package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

// Watchers receive each event once, in order, with the previous value, on every node and
// through every change of leaders.
func TestWatchersReceiveEachEventOnce(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) { t.Parallel(); tour(t, newMemory(t)) })
	sqldbtest.OnServers(t, func(t *testing.T, p enginetest.Product) {
		tour(t, sqldbtest.Opener(engines.OpenDB).Store(t, p.Database(t), sqlstore.Options{}))
	})
}

func tour(t *testing.T, store sqlstore.Store) {
	g := newGroup(t, store, slow, 3)
	load := g.load()
	watchers := map[*testNode]*chronicle{}
	for _, m := range g.all() {
		watchers[m] = watchAll(t, m)
	}
	told := func() (all []*chronicle) {
		for _, m := range g.all() {
			all = append(all, watchers[m])
		}
		return all
	}
	join := func(m *testNode) {
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
func (m *testNode) cutFeeds(f func()) {
	m.door.jam()
	defer m.door.unjam()
	f()
}
