package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestTheDatabaseIsAway for longer than the lock lasts. Nobody else can take the
// lock, so that the leader goes on when the database is back: in the same term,
// even with what it was asked meanwhile.
func TestTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), quick, 3)
	leads := g.leader()
	watcher := watchAll(t, g.others(leads)[0])
	mustPut(t, leads, "k", "1")
	before := leads.Backend().Status()
	for _, m := range g.all() {
		m.line.cutOff()
	}
	write := make(chan error, 1)
	go func() {
		_, err := leads.Backend().Txn(t.Context(), put("k", "2"), true)
		write <- err
	}()
	// The lock's own time has to pass: the outage is what is tested.
	<-time.After(3 * quick.lease)
	require.True(t, leads.Backend().Leading())
	last := lockSequence(t, g.store)
	leads.line.restore()
	require.NoError(t, <-write)
	until(t, "the lock to be renewed", func() bool { return lockSequence(t, g.store) > last })
	require.True(t, leads.Backend().Leading())
	require.Equal(t, before.Term, leads.Backend().Status().Term)
	for _, m := range g.others(leads) {
		m.line.restore()
	}
	again := g.leader()
	mustPut(t, again, "k", "3")
	for _, m := range g.all() {
		requireGet(t, m, "k", "3")
	}
	watcher.reach(again.Backend().Revision())
	t.Logf("term %d before, %d after", before.Term, again.Backend().Status().Term)
}

// TestTheDatabaseLosesData: nobody leads any more, nobody answers, and all say why.
func TestTheDatabaseLosesData(t *testing.T) {
	t.Parallel()
	const lost = "the database lost committed data"
	for name, lose := range map[string]func(t *testing.T, g *group, leads *member){
		"under a leader": func(*testing.T, *group, *member) {},
		// Those that are left have to find out before they lead.
		"without a leader": func(_ *testing.T, g *group, leads *member) { g.kill(leads) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, newMemory(t), slow, 3)
			leads := g.leader()
			mustPut(t, leads, "k", "1")
			backup, err := g.store.Get(t.Context(), coder.ChainKey())
			require.NoError(t, err)
			mustPut(t, leads, "k", "2")
			for _, m := range g.all() {
				requireGet(t, m, "k", "2")
				until(t, m.name+" to look at the chain row", func() bool {
					return m.Backend().Status().Sequence == leads.Backend().Status().Sequence
				})
			}
			if name == "without a leader" {
				for _, m := range g.others(leads) {
					m.line.hold(coder.ChainKey())
				}
			}
			lose(t, g, leads)
			restore := g.store.BeginBatchWrite()
			restore.Put(coder.ChainKey(), backup)
			require.NoError(t, restore.Commit(t.Context()))
			for _, m := range g.all() {
				m.line.restore()
			}
			for _, m := range g.all() {
				until(t, m.name+" to say why it stops serving", func() bool {
					reason := m.Backend().Status().Serving
					return reason != nil && strings.Contains(reason.Error(), lost)
				})
				require.ErrorIs(t, m.Backend().Status().Serving, backend.ErrNotServing)
				until(t, m.name+" to lead no more", func() bool { return !m.Backend().Leading() })
				_, _, err := get(t.Context(), m, "k", true)
				require.ErrorContains(t, err, lost)
			}
			// Nor does anybody stand for it.
			for _, m := range g.all() {
				until(t, m.name+" to stand back", func() bool { return m.campaigning.Err() != nil })
			}
			raw, err := g.store.Get(t.Context(), coder.ChainKey())
			require.NoError(t, err)
			require.Equal(t, backup, raw)
			// Nor does one that is started now, and has seen nothing.
			until(t, "the loss to be written down", func() bool {
				_, err := g.store.Get(t.Context(), coder.LostKey())
				return err == nil
			})
			late := g.join("late", freeAddress(t))
			require.ErrorContains(t, late.Backend().Stopped(), lost)
		})
	}
}

// lockSequence returns the lock row's mark, which every renewal raises.
func lockSequence(t *testing.T, store sqlstore.Store) int64 {
	raw, err := store.Get(t.Context(), coder.LockKey())
	require.NoError(t, err)
	sequence, _, err := coder.DecodeLock(raw)
	require.NoError(t, err)
	return sequence
}
