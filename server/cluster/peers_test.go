package cluster

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/peer"
)

// connections counts the attempts of m to connect to others that ended like this.
func connections(t testing.TB, m *member, outcome string) float64 {
	t.Helper()
	v, ok := m.pool.Outcomes().(*prometheus.CounterVec)
	require.True(t, ok)
	return testutil.ToFloat64(v.WithLabelValues(outcome))
}

func TestARemovedMemberIsDisconnected(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 3)
	leads := g.leader()
	removed := g.others(leads)[0]
	c, err := removed.client(t.Context(), leads.id())
	require.NoError(t, err)
	feed, err := c.Follow(t.Context(), leads.Backend().Revision()+1)
	require.NoError(t, err)
	defer feed.Close()
	_, err = feed.Next()
	require.NoError(t, err)

	removed.line.hold(nil) // it does not learn that it was removed
	defer removed.line.restore()
	until(t, "the leader to know that others live", func() bool {
		_, err := leads.Members().Remove(t.Context(), removed.id())
		return err == nil
	})
	for err == nil {
		_, err = feed.Next()
	}
	_, err = c.Position(t.Context())
	require.Error(t, err, "it cannot connect anew")
	g.forget(removed)
	removed.line.restore()
	removed.end(false)
	mustPut(t, g.leader(), "k", "1")
}

// No member of the group has to lead for that.
func TestAPeerURLThatLeadsToAnotherMemberIsNoticed(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 2)
	leads := g.leader()
	wrong := g.others(leads)[0]
	wrong.door.close()
	astray := newDoor(t, wrong.door.address, leads.door.target)
	defer astray.close()
	third := g.join("third", freeAddress(t))
	until(t, "the URL to be tried", func() bool { return connections(t, third, "other_node") > 0 })
	c, err := third.client(t.Context(), wrong.id())
	require.NoError(t, err)
	_, err = c.Position(t.Context())
	require.ErrorIs(t, err, peer.ErrOtherNode)
	require.Positive(t, connections(t, third, "connected"), "the other URLs are right")
}
