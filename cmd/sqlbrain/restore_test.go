package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
)

// saved writes a snapshot of a server into a file.
func saved(t *testing.T, ctx context.Context, c *clientv3.Client) string {
	t.Helper()
	in, err := c.Snapshot(ctx)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "snapshot.db")
	out, err := os.Create(path)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, in.Close())
	require.NoError(t, out.Close())
	return path
}

func TestRestore(t *testing.T) {
	source := startNode(t, "--datastore", sqliteURL(t), "--snapshot-dir", t.TempDir())
	ctx := testContext(t)
	from := source.client(t)
	for _, key := range []string{"a", "b", "b"} {
		_, err := from.Put(ctx, key, "v")
		require.NoError(t, err)
	}
	_, err := from.Delete(ctx, "a")
	require.NoError(t, err)
	file := saved(t, ctx, from)

	onEngines(t, "ALL PRIVILEGES", func(t *testing.T, datastore string) {
		a := succeed(t, "restore", file, "--datastore", datastore, "-o", "json")
		var l snapshot.Loaded
		require.NoError(t, json.Unmarshal([]byte(a.stdout), &l))
		require.Equal(t, snapshot.Loaded{Revision: 5, Versions: 4, Keys: 1}, l)
		execute(t, "restore", file, "--datastore", datastore).requireRefused(t, "the database is not empty")

		n := startNode(t, "--datastore", datastore)
		got, err := n.client(t).Get(ctx, "", clientv3.WithFromKey(), clientv3.WithRev(3))
		require.NoError(t, err)
		require.Len(t, got.Kvs, 2)
		require.EqualValues(t, 5, got.Header.Revision)
		require.Zero(t, n.stop())
	})

	t.Run("from the server", func(t *testing.T) {
		directory := t.TempDir()
		a := succeed(t, "restore", "--from", from.Endpoints()[0], "--datastore", sqliteURL(t), "--tmpdir", directory)
		require.Contains(t, a.stdout, "keys        1, in 4 versions")
		left, err := os.ReadDir(directory)
		require.NoError(t, err)
		require.Empty(t, left)
		execute(t, "restore", "--from", from.Endpoints()[0], "--datastore", sqliteURL(t), "--tmpdir",
			filepath.Join(directory, "not supported")).requireRefused(t, "its snapshot: open ")
	})

	t.Run("from the server as a user whose password is in a file", func(t *testing.T) {
		password := filepath.Join(t.TempDir(), "password")
		require.NoError(t, os.WriteFile(password, []byte(secret+"\n"), 0o600))
		_, err := from.UserAdd(ctx, "root", secret)
		require.NoError(t, err)
		_, err = from.UserGrantRole(ctx, "root", "root")
		require.NoError(t, err)
		_, err = from.AuthEnable(ctx)
		require.NoError(t, err)
		arguments := []string{"restore", "--from", from.Endpoints()[0], "--datastore", sqliteURL(t), "--tmpdir", t.TempDir(),
			"--user", "root"}
		execute(t, arguments...).requireRefused(t, "user name is empty")
		a := succeed(t, append(arguments, "--password-file", password)...)
		require.Contains(t, a.stdout, "users       1, roles 0, authentication on")
	})

	t.Run("refused", func(t *testing.T) {
		db := sqliteURL(t)
		for want, args := range map[string][]string{
			"name either a FILE, or a server or a continuous backup by --from": nil,
			"a directory is named as file:///backups":                          {"--from", "/backups"},
			"need each other":                  {file, "--mark-compacted"},
			"--mark-compacted need each other": {file, "--bump-revision", "1000"},
			"must not be negative":             {file, "--bump-revision", "-1"},
			"--skip-hash-check is for a FILE":  {"--from", "http://127.0.0.1:1", "--skip-hash-check"},
			"both have a password":             {"--from", "http://127.0.0.1:1", "--user", "root:" + secret, "--password", secret},
			"a password as well":               {"--from", "http://127.0.0.1:1", "--user", "root", "--password", secret, "--password-file", file},
			"is given, and a password":         {"--from", "http://127.0.0.1:1", "--user", "root:" + secret, "--password-file", file},
			"--password-file needs --user":     {"--from", "http://127.0.0.1:1", "--password-file", file},
			"--password-file: open":            {"--from", "http://127.0.0.1:1", "--user", "root", "--password-file", file + ".not"},
			"no such file":                     {file + ".not"},
			"the snapshot file is damaged":     {os.Args[0]},
			"from http://127.0.0.1:1":          {"--from", "http://127.0.0.1:1", "--user", "root:" + secret},
			"cacert-that-is-not":               {"--from", "https://127.0.0.1:1", "--cacert", "cacert-that-is-not"},
		} {
			execute(t, append([]string{"restore", "--datastore", db}, args...)...).requireRefused(t, want)
		}
	})
	require.Zero(t, source.stop())
}

// TestRestoreThatHasNotEnded: every command but restore refuses the database, and says why.
func TestRestoreThatHasNotEnded(t *testing.T) {
	source := startNode(t, "--datastore", sqliteURL(t), "--snapshot-dir", t.TempDir())
	source.put(t, "k", "v")
	file := saved(t, t.Context(), source.client(t))
	require.Zero(t, source.stop())

	onEngines(t, kineGrants, func(t *testing.T, datastore string) {
		u, err := sqlstore.ParseURL(datastore)
		require.NoError(t, err)
		db, err := engines.OpenDB(u, sqlstore.Options{})
		require.NoError(t, err)
		require.NoError(t, migrations.Up(t.Context(), u.Dialect, db.SQL()))
		for _, statement := range append(kineTable[:len(kineTable):len(kineTable)], kineKeys...) {
			_, err := db.SQL().ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		require.NoError(t, db.Close())
		store, err := engines.Open(t.Context(), u, sqlstore.Options{})
		require.NoError(t, err)
		_, err = repair.BeginRestore(t.Context(), store, -1)
		require.NoError(t, err)
		require.NoError(t, store.Close())

		endpoint := datastore
		if u.Dialect == sqlstore.DialectMySQL {
			endpoint = kineEndpoint(t, datastore)
		}
		const why = "the database is being restored, or a restore was interrupted"
		serve(t, "--log-format=json", "--datastore", datastore).requireRefused(t, why)
		execute(t, "recover", "--yes", "--datastore", datastore).requireRefused(t, why)
		serveKineRefused(t, endpoint, why)
		succeed(t, "restore", file, "--datastore", datastore)
		// kine's keys were never imported.
		serveKineRefused(t, endpoint, "data of sqlbrain too")
		n := startNode(t, "--datastore", datastore)
		got, err := n.client(t).Get(t.Context(), "k")
		require.NoError(t, err)
		require.Len(t, got.Kvs, 1)
		require.Zero(t, n.stop())
	})
}
