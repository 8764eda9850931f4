package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// A follower first loses a leader that sends anything, then the database as well. It reports
// both, and recovers when they are back.
func TestFollowerReportsMissingLeaderAndDatabase(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 2)
	leads := g.leader()
	follower := g.others(leads)[0]
	b := follower.Replica()
	require.NoError(t, b.Fed())
	require.NoError(t, b.Probe.Writable(t.Context()))

	leads.freeze()
	eventually.True(t, "the silence to be noticed", func() bool { return b.Status().Leader == 0 })
	require.NoError(t, b.Fed(), "it reads the log")
	require.NoError(t, b.Probe.Writable(t.Context()))

	follower.line.cutOff()
	eventually.True(t, "the follower to know that it knows nothing", func() bool { return b.Fed() != nil })
	require.ErrorContains(t, b.Fed(), "no commit or heartbeat for 3s")
	require.ErrorIs(t, b.Probe.Writable(t.Context()), sqlstore.ErrUnavailable)
	require.NoError(t, b.Stopped(), "that is no reason to stop")

	follower.line.restore()
	leads.thaw()
	eventually.True(t, "the leader to be heard again", func() bool { return b.Status().Leader == leads.id() })
	eventually.True(t, "the feed to be back", func() bool { return b.Fed() == nil })
	require.NoError(t, b.Probe.Writable(t.Context()))
}
