package node

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/cluster/feed"
	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// connections counts the attempts of m to connect to others that ended like this.
func connections(t testing.TB, m *testNode, outcome string) float64 {
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
	var f *feed.Feed
	// a busy leader is silent for longer than a feed may be
	eventually.Nil(t, deadline, func(context.Context) (err error) {
		if f, err = feed.NewClient(c).Follow(t.Context(), leads.Replica().Revision()+1); err != nil {
			return err
		}
		if _, err = f.Next(); err != nil {
			f.Close()
		}
		return err
	})
	defer f.Close()

	removed.line.hold(nil) // it does not learn that it was removed
	defer removed.line.restore()
	eventually.True(t, "the leader to know that others live", func() bool {
		_, err := leads.Members().Remove(t.Context(), removed.id())
		return err == nil
	})
	for err == nil {
		_, err = f.Next()
	}
	_, err = feed.NewClient(c).Position(t.Context())
	require.Error(t, err, "it cannot connect anew")
	g.forget(removed)
	removed.line.restore()
	removed.end(false)
	mustPut(t, g.leader(), "k", "1")
}

// No member of the group has to lead for that.
func TestPeerURLOfAnotherMemberIsLogged(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 2)
	leads := g.leader()
	wrong := g.others(leads)[0]
	wrong.door.close()
	astray := newDoor(t, wrong.door.address, leads.door.target)
	defer astray.close()
	third := g.join("third", freeAddress(t))
	eventually.True(t, "the URL to be tried", func() bool { return connections(t, third, "other_node") > 0 })
	c, err := third.client(t.Context(), wrong.id())
	require.NoError(t, err)
	_, err = feed.NewClient(c).Position(t.Context())
	require.ErrorIs(t, err, link.ErrOtherNode)
	require.Positive(t, connections(t, third, "connected"), "the other URLs are right")
}
