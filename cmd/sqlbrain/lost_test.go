package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// A server under which an older state of the database comes back says so, and after a
// restart says so still, until recover was run.
func TestRestartedServerStillRefusesToServeLostData(t *testing.T) {
	eachRecoverable(t, func(r recoverable) {
		t := r.t
		ctx := testContext(t)
		n := startNode(t, "--datastore", r.datastore)
		c := n.client(t)
		_, err := c.Put(ctx, "k", "kept")
		require.NoError(t, err)
		r.keep()
		var acknowledged int64
		for range 3 {
			p, err := c.Put(ctx, "k", "lost")
			require.NoError(t, err)
			acknowledged = p.Header.Revision
		}
		r.lose()
		_, err = c.Put(ctx, "k", "next")
		require.Error(t, err)
		written := n.log.await("persisted the data loss marker; no member serves until 'sqlbrain recover' is run")
		require.EqualValues(t, acknowledged, written["revision"])
		require.Zero(t, n.stop())

		why := fmt.Sprintf("revision %d was acknowledged", acknowledged)
		if u, err := sqlstore.ParseURL(r.datastore); err == nil && u.Dialect == sqlstore.DialectSQLite {
			execute(t, "--datastore", r.datastore, "--listen-client-urls=http://127.0.0.1:0").requireRefused(t, why,
				"see sqlbrain recover")
		} else {
			n = startNode(t, "--datastore", r.datastore)
			for _, path := range []string{"/readyz", "/readyz/serving"} {
				status, text := fetch(t, n.endpoint+path)
				require.Equal(t, http.StatusServiceUnavailable, status)
				require.Contains(t, text, "[-]serving failed: not serving: the database lost committed data: "+why)
			}
			_, err = n.client(t).Put(ctx, "k", "next")
			require.Error(t, err)
			require.Zero(t, n.stop())
		}

		require.Contains(t, strings.Join(r.run().Problems, "; "), fmt.Sprintf("has seen revision %d", acknowledged))
		require.Equal(t, acknowledged+1, r.run("--yes", "--bump-revision=1").Next.Revision,
			"raised from what was acknowledged")
		r.with(func(ctx context.Context, c *clientv3.Client) {
			got, err := c.Get(ctx, "k")
			require.NoError(t, err)
			require.Equal(t, "kept", string(got.Kvs[0].Value))
			p, err := c.Put(ctx, "k", "new")
			require.NoError(t, err)
			require.Equal(t, acknowledged+2, p.Header.Revision)
		})
	})
}
