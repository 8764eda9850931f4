package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
)

// TestRestoreOverAClusterGivesNoRevisionOutTwice: a database is put back to a backup. What it held is removed, and the
// store continues above every revision that clients have seen.
func TestRestoreOverAClusterGivesNoRevisionOutTwice(t *testing.T) {
	onEngines(t, "ALL PRIVILEGES", func(t *testing.T, datastore string) {
		ctx := testContext(t)
		file := filepath.Join(t.TempDir(), "backup.db")
		restore := func(args ...string) answer {
			return execute(t, append([]string{"restore", file, "--datastore", datastore}, args...)...)
		}
		n := startNode(t, "--datastore", datastore)
		c := n.client(t)
		_, err := c.Put(ctx, "a", "kept")
		require.NoError(t, err)
		succeed(t, "backup", "--to", file, "--datastore", datastore)
		_, err = c.Put(ctx, "b", "later")
		require.NoError(t, err)
		last, err := c.Put(ctx, "b", "last")
		require.NoError(t, err)
		seen := last.Header.Revision
		running := restore("--replace")
		require.Equal(t, 1, running.code, running.stdout)
		require.Regexp(t, "members are running|in use by another sqlbrain", running.stderr)
		require.Zero(t, n.stop())
		restore().requireRefused(t, "the database is not empty: restore --replace")

		a := restore("--replace")
		require.Zero(t, a.code, a.stderr)
		raised := seen + repair.DefaultBump
		require.Contains(t, a.stdout, fmt.Sprintf(
			"revision    %d, compacted below %d\nreplaced    revision %d: the new one is above it", raised, raised, seen))
		n = startNode(t, "--datastore", datastore)
		c = n.client(t)
		got, err := c.Get(ctx, "", clientv3.WithFromKey())
		require.NoError(t, err)
		require.Equal(t, raised, got.Header.Revision)
		require.Len(t, got.Kvs, 1)
		require.Equal(t, "kept", string(got.Kvs[0].Value))
		_, err = c.Get(ctx, "b", clientv3.WithRev(seen))
		require.ErrorIs(t, err, rpctypes.ErrCompacted)
		watched := <-c.Watch(ctx, "b", clientv3.WithRev(seen+1))
		require.ErrorIs(t, watched.Err(), rpctypes.ErrCompacted)
		put, err := c.Put(ctx, "b", "new")
		require.NoError(t, err)
		require.Equal(t, raised+1, put.Header.Revision)
		require.Zero(t, n.stop())

		t.Run("flags take precedence", func(t *testing.T) {
			a := restore("--replace", "--bump-revision", "5", "--mark-compacted")
			require.Zero(t, a.code, a.stderr)
			require.Contains(t, a.stdout, "revision    7, compacted below 7\n")
			require.Contains(t, a.stdout, fmt.Sprintf("replaced    revision %d, which the new one is not safely above",
				raised+1))
			a = restore("--replace", "--bump-revision", "0", "-o", "json")
			require.Zero(t, a.code, a.stderr)
			var l snapshot.Loaded
			require.NoError(t, json.Unmarshal([]byte(a.stdout), &l))
			require.Equal(t, snapshot.Loaded{Revision: 2, Versions: 1, Keys: 1, Replaced: 7}, l)
		})
		t.Run("an empty database", func(t *testing.T) {
			a := succeed(t, "restore", file, "--datastore", sqliteURL(t))
			require.Contains(t, a.stdout, "revision    2, nothing is compacted\nnot raised  the database was empty: if a "+
				"client has seen a revision above 2")
		})
	})
}
