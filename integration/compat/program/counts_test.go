package program

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// tableReads returns how many ranges a server has read from the table.
func tableReads(t *testing.T, node *harness.Node) (reads float64) {
	t.Helper()
	const name = "sqlbrain_range_cache_misses_total "
	response, err := http.Get(node.Endpoint() + "/metrics")
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, response.Body.Close())
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n"+name)
	require.True(t, found, "no %s", name)
	_, err = fmt.Sscan(rest, &reads)
	require.NoError(t, err)
	return reads
}

// TestFirstCountAfterStart: the first count of a server is exact and reads no keys, after a stop and after a crash.
func TestFirstCountAfterStart(t *testing.T) {
	if harness.TargetIsEtcd() {
		t.Skip("etcd has no such metric")
	}
	const keys = 60_000 // more than are counted again after each start
	harness.OnAnyEngine(t, func(t *testing.T, e harness.Engine) {
		node := harness.StartNode(t, e)
		count := func(opts ...clientv3.OpOption) int64 {
			t.Helper()
			got, err := node.Client().Get(t.Context(), "/counted/",
				append(opts, clientv3.WithPrefix(), clientv3.WithCountOnly())...)
			require.NoError(t, err)
			return got.Count
		}
		harness.Fill(t, node.Client(), "/counted/", keys, "value")
		require.EqualValues(t, keys, count())
		node.Stop()
		node.Start()
		require.EqualValues(t, keys, count())
		require.Zero(t, tableReads(t, node))

		harness.Fill(t, node.Client(), "/counted/0000500x", 1000, "value")
		deleted, err := node.Client().Delete(t.Context(), "/counted/0010000", clientv3.WithRange("/counted/0010100"))
		require.NoError(t, err)
		require.EqualValues(t, 100, deleted.Deleted)
		_, err = node.Client().Put(t.Context(), "/counted/0010050", "again")
		require.NoError(t, err)
		const now = keys + 1000 - 100 + 1
		node.Kill()
		node.Start()
		require.EqualValues(t, now, count())
		require.Zero(t, tableReads(t, node))
		require.EqualValues(t, now-1, count(clientv3.WithRev(deleted.Header.Revision)))
		require.EqualValues(t, now-1+100, count(clientv3.WithRev(deleted.Header.Revision-1)))

		_, err = node.Client().Compact(t.Context(), deleted.Header.Revision+1, clientv3.WithCompactPhysical())
		require.NoError(t, err)
		node.Kill()
		node.Start()
		require.EqualValues(t, now, count())
	})
}
