package cluster

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/backend"
)

// changeUsers raises the version of users and roles.
func changeUsers(t testing.TB, m *member) int64 {
	t.Helper()
	_, err := m.Backend().ChangeAuth(t.Context(), func(rows *backend.AuthRows) (*backend.AuthChange, error) {
		return &backend.AuthChange{Enabled: true, Revision: rows.Revision + 1, Users: map[string][]byte{"u": []byte("x")}}, nil
	})
	require.NoError(t, err)
	return m.Backend().AuthRows().Version
}

func TestFollowersLearnOfUsersAndRoles(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 3)
	first := g.leader()
	version := changeUsers(t, first)
	for _, f := range g.others(first) {
		until(t, "a follower to know the users", func() bool { return f.Backend().AuthRows().Version == version })
		_, err := f.Backend().ChangeAuth(t.Context(), nil)
		require.ErrorIs(t, err, backend.ErrNotLeader)
	}
	next := g.others(first)[0]
	require.NoError(t, first.MoveLeader(t.Context(), next.id()))
	until(t, "the next one to lead", next.Backend().Leading)
	require.Equal(t, version+1, changeUsers(t, next))
	// Whoever is asked next, in a linearizable read, obeys what was acknowledged.
	for range 20 {
		version = changeUsers(t, next)
		for _, m := range g.all() {
			rows, err := m.Backend().SyncAuth(t.Context())
			require.NoError(t, err)
			require.GreaterOrEqual(t, rows.Version, version)
		}
	}
}

func TestFollowersLearnOfRevokedTokens(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 3)
	leads := g.leader()
	token, _, err := leads.Backend().IssueToken(t.Context(), "letters", func(*backend.AuthRows) (coder.Token, error) { return coder.Token{User: "u"}, nil })
	require.NoError(t, err)
	h := coder.HashToken(token)
	_, err = leads.Backend().ChangeAuth(t.Context(), func(rows *backend.AuthRows) (*backend.AuthChange, error) {
		return &backend.AuthChange{Enabled: true, Revoked: map[string][]byte{string(h[:]): []byte("x")}}, nil
	})
	require.NoError(t, err)
	for _, m := range g.all() {
		rows, err := m.Backend().SyncAuth(t.Context())
		require.NoError(t, err)
		require.Equal(t, "x", string(rows.Revoked[string(h[:])]))
		_, found, err := m.Backend().LookupToken(t.Context(), h)
		require.NoError(t, err)
		require.False(t, found)
	}
}

// What was written behind a change of users is judged by that change, or a later one,
// on every node: serializable reads too may be old, but not under older permissions
// than what they show.
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
				ctx := backend.WithPermit(t.Context(), func(_ context.Context, at backend.AuthView) error {
					judged = at.AuthRows().Version
					return nil
				})
				value, _, err := get(ctx, m, "k", false)
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
}
