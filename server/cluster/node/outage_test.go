package node

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// After the database lost acknowledged data no node leads or answers, and all report why.
func TestNodesStopServingAfterDataLoss(t *testing.T) {
	t.Parallel()
	const lost = "the database lost committed data"
	for name, lose := range map[string]func(t *testing.T, g *group, leads *testNode){
		"under a leader": func(*testing.T, *group, *testNode) {},
		// Those that are left have to find out before they lead.
		"without a leader": func(_ *testing.T, g *group, leads *testNode) { g.kill(leads) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, newMemory(t), slow, 3)
			leads := g.leader()
			mustPut(t, leads, "k", "1")
			backup, err := g.store.Get(t.Context(), coder.FenceKey())
			require.NoError(t, err)
			mustPut(t, leads, "k", "2")
			for _, m := range g.all() {
				requireGet(t, m, "k", "2")
				eventually.True(t, m.name+" to look at the fence row", func() bool {
					return m.Replica().Status().Sequence == leads.Replica().Status().Sequence
				})
			}
			if name == "without a leader" {
				for _, m := range g.others(leads) {
					m.line.hold(coder.FenceKey())
				}
			}
			lose(t, g, leads)
			restore := g.store.BeginBatchWrite()
			restore.Put(coder.FenceKey(), backup)
			require.NoError(t, restore.Commit(t.Context()))
			for _, m := range g.all() {
				m.line.restore()
			}
			for _, m := range g.all() {
				eventually.True(t, m.name+" to say why it stops serving", func() bool {
					reason := m.Replica().Status().NotServing
					return reason != nil && strings.Contains(reason.Error(), lost)
				})
				require.ErrorIs(t, m.Replica().Status().NotServing, mvcc.ErrNotServing)
				eventually.True(t, m.name+" to lead no more", func() bool { return !m.Replica().Leading() })
				_, _, err := get(t.Context(), m, "k", true)
				require.ErrorContains(t, err, lost)
			}
			// Nor does anybody stand for it.
			for _, m := range g.all() {
				select {
				case <-m.members.Resigned():
				case <-time.After(deadline):
					require.Fail(t, m.name+" stands for the leadership")
				}
			}
			raw, err := g.store.Get(t.Context(), coder.FenceKey())
			require.NoError(t, err)
			left, err := coder.DecodeFenceToken(raw)
			require.NoError(t, err)
			left.Attempt = 0 // the proofs of the loss raise it
			require.Equal(t, backup, coder.EncodeFenceToken(left))
			// Nor does one that is started now, and has seen nothing.
			eventually.True(t, "the loss to be written down", func() bool {
				_, err := g.store.Get(t.Context(), coder.DataLossKey())
				return err == nil
			})
			late := g.join("late", freeAddress(t))
			require.ErrorContains(t, late.Replica().Stopped(), lost)
		})
	}
}

// loseNewest kills the leader of two nodes, and makes the database lose its newest commit, of revision lost, which the
// other one, the witness, has seen. The witness is frozen by then. next leads. fail is called with the witness before
// it is frozen.
func (g *group) loseNewest(fail func(witness *testNode)) (witness, next *testNode, lost int64) {
	g.t.Helper()
	old := g.leader()
	witness = g.others(old)[0]
	mustPut(g.t, old, "k", "kept")
	requireGet(g.t, witness, "k", "kept")
	backup := allRows(g.t, g.store)
	lost = mustPut(g.t, old, "k", "lost")
	requireGet(g.t, witness, "k", "lost")
	fail(witness)
	witness.freeze()
	g.kill(old)
	restoreRows(g.t, g.store, backup)
	next = g.join("c", freeAddress(g.t))
	eventually.True(g.t, "the new member to lead", next.Replica().Leading)
	return witness, next, lost
}

// A follower is frozen while the database loses its newest commit, and another leader writes that
// revision again. The follower finds that out when it begins to follow the leader's feed: it
// cannot read the fence row, and so not the log.
func TestFollowerComparesItsRevisionsBeforeItFollows(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), quick, 2)
	frozen, next, lost := g.loseNewest(func(m *testNode) { m.line.hang(coder.AuthSettingsKey()) })
	require.Equal(t, lost, mustPut(t, next, "k", "replaced"))
	mustPut(t, next, "other", "v")
	frozen.thaw()
	for _, m := range []*testNode{frozen, next} {
		eventually.True(t, m.name+" to stop", func() bool { return errors.Is(m.Replica().Stopped(), fence.ErrDataLost) })
	}
}

// The only node that knows what was lost cannot write that. It makes another member write it.
func TestLossIsToldToAnotherMember(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), quick, 2)
	witness, next, _ := g.loseNewest(func(m *testNode) { m.line.refuse(coder.DataLossKey()) })
	for range 3 {
		mustPut(t, next, "k", "replaced")
	}
	witness.thaw()
	eventually.True(t, "the new member to stop",
		func() bool { return errors.Is(next.Replica().Stopped(), fence.ErrDataLost) })
	require.ErrorContains(t, next.Replica().Stopped(), fmt.Sprintf("member %x found that", witness.id()))
}

// The database loses commits, and also that the only process which knows them has joined. That process is no longer a
// member, and records the loss all the same.
func TestProcessWhoseStartWasLostRecordsTheLoss(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), quick, 2)
	old := g.leader()
	g.leave(g.others(old)[0])
	mustPut(t, old, "k", "kept")
	backup := allRows(t, g.store)
	witness := g.join("b", freeAddress(t))
	mustPut(t, old, "k", "lost")
	requireGet(t, witness, "k", "lost")
	witness.line.hang(coder.AuthSettingsKey()) // only the look reads it: the poll finds first that it is no member
	witness.freeze()
	g.kill(old)
	restoreRows(t, g.store, backup)

	next := g.join("b", freeAddress(t)) // in the place of the witness
	eventually.True(t, "the new process to lead", next.Replica().Leading)
	for range 3 {
		mustPut(t, next, "k", "replaced")
	}
	witness.thaw()
	eventually.True(t, "the witness to be no member",
		func() bool { return errors.Is(witness.Replica().Stopped(), member.ErrReplaced) })
	witness.line.hang(nil)
	for _, m := range []*testNode{witness, next} {
		eventually.True(t, m.name+" to stop", func() bool { return errors.Is(m.Replica().Stopped(), fence.ErrDataLost) })
	}
}

func allRows(t testing.TB, store sqlstore.Store) (rows []sqlstore.Row) {
	t.Helper()
	for row, err := range store.Iter(t.Context(), sqlstore.Range{Start: []byte{0}, End: bytes.Repeat([]byte{0xff}, 8)}) {
		require.NoError(t, err)
		rows = append(rows, row)
	}
	return rows
}

// restoreRows makes store hold rows and nothing else.
func restoreRows(t testing.TB, store sqlstore.Store, rows []sqlstore.Row) {
	t.Helper()
	kept := make(map[string]bool)
	batch := store.BeginBatchWrite()
	for _, row := range rows {
		kept[string(row.Key)] = true
		batch.Put(row.Key, row.Value)
	}
	for _, row := range allRows(t, store) {
		if !kept[string(row.Key)] {
			batch.Del(row.Key)
		}
	}
	require.NoError(t, batch.Commit(t.Context()))
}

// A member that was granted the lock cannot read a row that a new leader needs, while its
// heartbeats arrive. It releases the lock, and another member leads.
func TestTakeoverThatHangsLeavesTheLockToOthers(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 3)
	first := g.leader()
	mustPut(t, first, "k", "1")
	stuck := g.others(first)[0]
	hung := stuck.line.hang(coder.JobKey())
	require.NoError(t, first.MoveLeader(t.Context(), stuck.id()))
	require.NoError(t, <-hung) // it reads
	require.Error(t, <-hung)   // and has given up
	var next *testNode
	eventually.True(t, "another member to lead", func() bool {
		for _, m := range g.others(stuck) {
			if m.Replica().Leading() {
				next = m
			}
		}
		return next != nil
	})
	mustPut(t, next, "k", "2")
	stuck.line.hang(nil)
	g.leader()
	requireGet(t, stuck, "k", "2")
	// It can lead later.
	require.NoError(t, next.MoveLeader(t.Context(), stuck.id()))
	eventually.True(t, stuck.name+" to lead", stuck.Replica().Leading)
	mustPut(t, stuck, "k", "3")
}
