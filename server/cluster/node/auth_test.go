package node

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// changeUsers raises the version of users and roles.
func changeUsers(t testing.TB, m *testNode) int64 {
	t.Helper()
	_, err := m.Replica().Auth.Change(t.Context(), auth.System, func(rows *auth.Rows) (*auth.Change, error) {
		return &auth.Change{Enabled: true, Revision: rows.Revision + 1, Users: map[string][]byte{"u": []byte("x")}}, nil
	})
	require.NoError(t, err)
	return m.Replica().Auth.Rows().Version
}

// Every node checks a write that follows a change of users by that change, or a later one.
// Serializable reads may be old too, but never under older permissions than their data.
func TestNothingIsShownUnderOlderPermissions(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 3)
	leads := g.leader()
	mustPut(t, leads, "k", "0")
	over := make(chan struct{})
	var readers, reading sync.WaitGroup
	for _, m := range g.all() {
		reading.Add(1)
		readers.Go(func() {
			began := sync.OnceFunc(reading.Done)
			defer began()
			for {
				select {
				case <-over:
					return
				default:
				}
				var judged int64
				permit := auth.NewPermit(func(_ context.Context, at auth.View) error {
					judged = at.AuthRows().Version
					return nil
				})
				value, _, err := getAs(t.Context(), m, permit, "k", false)
				if err != nil {
					t.Error(err)
					return
				}
				began()
				if shown, err := strconv.ParseInt(value, 10, 64); value != "" && (err != nil || shown > judged) {
					t.Errorf("%s shows what was written behind version %s, and judges by version %d", m.name, value, judged)
					return
				}
			}
		})
	}
	reading.Wait() // else all may be written before a node is read at all
	for range 100 {
		mustPut(t, leads, "k", strconv.FormatInt(changeUsers(t, leads), 10))
	}
	close(over)
	readers.Wait()
	for _, f := range g.others(leads) { // also if the machine was too busy for the readers
		eventually.True(t, "a follower to show the last write",
			func() bool { return f.Replica().Revision() == leads.Replica().Revision() })
		require.GreaterOrEqual(t, f.Replica().Auth.Rows().Version, leads.Replica().Auth.Rows().Version)
	}
}
