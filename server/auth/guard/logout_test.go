package guard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
)

func TestLogoutMakesATokenVoidOnEveryNode(t *testing.T) {
	n := newNode(t)
	g, other := newGuard(t, n), newGuard(t, n)
	populate(t, g)
	clock := sharedClock(g, other)
	logout := func(token string) {
		t.Helper()
		require.NoError(t, g.Logout(tokenContext(t.Context(), token), g.RevokeToken))
	}
	token, kept := g.login(t), g.login(t)
	g.requireCaller(t, token, "ann")
	other.requireCaller(t, token, "ann") // it remembers the token from now on
	revision, version := g.Revision(), n.Auth.Rows().Version
	logout(token)
	require.Equal(t, revision, g.Revision(), "requests under way are of the same revision of users")
	require.Equal(t, version+1, n.Auth.Rows().Version)
	_, found, err := n.Auth.LookupToken(t.Context(), coder.HashToken(token))
	require.NoError(t, err)
	require.False(t, found, "the row is removed")
	for range 100 { // an attacker uses it again and again
		*clock = clock.Add(50 * time.Second)
		g.requireCaller(t, token, "")
		other.requireCaller(t, token, "")
		other.requireCaller(t, kept, "ann")
	}
	logout(token) // once more changes nothing
	logout("rubbish.1")
	require.Equal(t, version+1, n.Auth.Rows().Version)

	// What was revoked is forgotten with a later logout.
	_, err = n.Auth.Change(t.Context(), auth.System, func(rows *auth.Rows) (*auth.Change, error) {
		h := coder.HashToken(token)
		return &auth.Change{Enabled: rows.Enabled, Revision: rows.Revision,
			Revoked: map[string][]byte{string(h[:]): make([]byte, 8)}}, nil
	})
	require.NoError(t, err)
	logout(kept)
	require.Len(t, n.Auth.Rows().Revoked, 1)
	other.requireCaller(t, token, "")
}

// TestLogoutKeepsTheRulesOfUsers: a logout needs no right, and must not make every node build etcd's rules anew.
func TestLogoutKeepsTheRulesOfUsers(t *testing.T) {
	n := newNode(t)
	g := newGuard(t, n)
	populate(t, g)
	before := g.view(n.Auth.Rows())
	token := g.login(t)
	require.NoError(t, g.Logout(tokenContext(t.Context(), token), g.RevokeToken))
	rows := n.Auth.Rows()
	after := g.view(rows)
	require.NotSame(t, before, after)
	require.Same(t, before.AuthStore, after.AuthStore)
	require.Same(t, rows, after.rows)
	require.Same(t, after, g.view(rows))

	// The revision alone does not tell: a change that was not committed had one too.
	other := rows.With(&auth.Change{Enabled: rows.Enabled, Revision: rows.Revision, Users: map[string][]byte{"ann": nil}})
	require.Nil(t, g.view(other).user("ann"))
	require.NotNil(t, g.view(rows).user("ann"))
	off := rows.With(&auth.Change{Revision: rows.Revision})
	require.False(t, g.view(off).IsAuthEnabled())
}

func TestATokenEndsAfterTheLifetimeThatWasAskedFor(t *testing.T) {
	g := newGuard(t, newNode(t))
	populate(t, g)
	for _, tt := range []struct {
		asked string
		valid bool
	}{{"0", false}, {"3600", true}, {"x", true}, {"-5", true}} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(LifetimeKey, tt.asked))
		token, _, err := g.Authenticate(ctx, "ann", "annpw", g.IssueToken)
		require.NoError(t, err)
		_, _, err = g.caller(tokenContext(t.Context(), token), g.info)
		require.Equal(t, tt.valid, err == nil, tt.asked)
	}
}
