package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// runtimeGrants are all that a running server needs, as docs/engines.md says.
var runtimeGrants = map[string]string{"object": "SELECT, INSERT, UPDATE, DELETE", "schema_migrations": "SELECT"}

// granted returns the URL of a new user that has rights on tables and nothing
// else.
func granted(t *testing.T, rootURL string, rights map[string]string) string {
	t.Helper()
	raw := newUser(t, rootURL, "USAGE")
	u, err := url.Parse(raw)
	require.NoError(t, err)
	for table, r := range rights {
		if r != "" {
			enginetest.Exec(t, rootURL, "GRANT "+r+" ON `"+strings.TrimPrefix(u.Path,
				"/")+"`.`"+table+"` TO '"+u.User.Username()+"'@'%'")
		}
	}
	return raw
}

func TestServeNeedsNoGrantToChangeTheSchema(t *testing.T) {
	rootURL := enginetest.Database(t)
	succeed(t, "migrate", "up", "--datastore", newUser(t, rootURL, "ALL PRIVILEGES"))
	raw := granted(t, rootURL, runtimeGrants)
	for _, mode := range []string{"verify", "auto"} { // auto finds nothing to do
		n := startNode(t, "serve", "--migrate="+mode, "--datastore", raw)
		c := n.client(t)
		put, err := c.Put(t.Context(), "k", mode)
		require.NoError(t, err)
		_, err = c.Put(t.Context(), "k", mode+" again")
		require.NoError(t, err)
		got, err := c.Get(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, mode+" again", string(got.Kvs[0].Value))
		_, err = c.Delete(t.Context(), "k")
		require.NoError(t, err)
		_, err = c.Compact(t.Context(), put.Header.Revision+2)
		require.NoError(t, err)
		_, err = c.Status(t.Context(), n.endpoint)
		require.NoError(t, err)
		_, err = c.Defragment(t.Context(), n.endpoint)
		require.NoError(t, err)
		require.Zero(t, n.stop())
	}
	a := succeed(t, "doctor", "--datastore", raw)
	require.Contains(t, a.stdout, "select, insert, update and delete on table object")
	if enginetest.Any().Can(enginetest.CreateProbe) {
		require.Contains(t, a.stdout, "may not create tables")
	}
}

func TestMissingGrantsAreNamed(t *testing.T) {
	rootURL := enginetest.Database(t)
	succeed(t, "migrate", "up", "--datastore", newUser(t, rootURL, "ALL PRIVILEGES"))
	for _, c := range []struct {
		object, versions string
		want             []string
		doctor           string
	}{
		{"SELECT", "SELECT", []string{"denied"}, "cannot insert, update, delete on table object"},
		{"SELECT, UPDATE, DELETE", "SELECT", []string{"INSERT", "denied"}, "cannot insert"},
		{"SELECT, INSERT, DELETE", "SELECT", []string{"UPDATE", "denied"}, "cannot update"},
		{"SELECT, INSERT, UPDATE, DELETE", "", []string{"grant", "SELECT", "schema_migrations"}, "schema_migrations"},
	} {
		raw := granted(t, rootURL, map[string]string{"object": c.object, "schema_migrations": c.versions})
		serve(t, "--migrate=verify", "--datastore", raw).requireRefused(t, c.want...)
		a := execute(t, "doctor", "--datastore", raw)
		require.Equal(t, 1, a.code, a.stdout)
		require.Contains(t, a.stdout, c.doctor)
	}
	// Without DELETE a server would run until the first compaction: doctor reports it.
	a := execute(t, "doctor", "--datastore", granted(t, rootURL,
		map[string]string{"object": "SELECT, INSERT, UPDATE", "schema_migrations": "SELECT"}))
	require.Equal(t, 1, a.code)
	require.Contains(t, a.stdout, "cannot delete")
}
