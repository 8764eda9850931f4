package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// TestALeaderThatCannotBeReachedIsNotWaitedFor: the leader runs, and only this member cannot connect to it.
func TestALeaderThatCannotBeReachedIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 2)
	leads := g.leader()
	follower := g.others(leads)[0]
	mustPut(t, leads, "k", "1")
	requireGet(t, follower, "k", "1")

	leads.door.close()
	var err error
	eventually.True(t, "a call to be refused", func() bool {
		_, _, err = follower.Route(t.Context())
		return err != nil
	})
	require.ErrorIs(t, err, mvcc.ErrLeaderUnreachable)
	require.ErrorContains(t, err, leads.door.url())
	require.Zero(t, follower.Leader(), "as /readyz reports")
	_, _, err = get(t.Context(), follower, "k", true)
	require.ErrorIs(t, err, mvcc.ErrLeaderUnreachable)
	value, _, err := get(t.Context(), follower, "k", false)
	require.NoError(t, err)
	require.Equal(t, "1", value)
	mustPut(t, leads, "k", "2") // it leads on

	leads.door = newDoor(t, leads.door.address, leads.door.target)
	eventually.True(t, "the leader to be found again", func() bool {
		value, _, err := get(t.Context(), follower, "k", true)
		return err == nil && value == "2"
	})
}
