package latency

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	// wait is far longer than anything here takes.
	wait = 4 * time.Minute
	// many is more keys than pages of a thousand, read one after the other, bring within the usual time of a request.
	many = 100_000
)

// TestFarDatabase: with a database that is so far away, all answers and watches are right, another node leads after the
// leader was killed, and many keys are listed and deleted at once.
func TestFarDatabase(t *testing.T) {
	harness.NeedsDatabase(t)
	for _, roundTrip := range []time.Duration{2 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
		t.Run(roundTrip.String(), func(t *testing.T) {
			c := harness.StartCluster(t, harness.ClusterConfig{Network: true, Extra: []string{"--request-timeout=2m"}})
			for i := range c.Size() {
				c.Network().Database(i, harness.Delay(roundTrip/2)) // of each direction
			}
			s := siege.Lay(t, c, 8, wait)
			s.Progress(100)
			leader, since := c.Leader(), time.Now()
			c.Kill(leader)
			s.Progress(100)
			t.Logf("no write for %s after the leader was killed", s.Gap(since).Round(time.Millisecond))
			c.Start(leader)
			s.Progress(100)
			s.End()
			manyKeys(t, c.Client())
		})
	}
}

// manyKeys lists and deletes many keys.
func manyKeys(t *testing.T, client *clientv3.Client) {
	t.Helper()
	harness.Fill(t, client, "many/", many, "v")
	began := time.Now()
	eventually.Nil(t, wait, func(ctx context.Context) error { // another node may come to lead on a busy machine
		res, err := client.Get(ctx, "many/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err == nil {
			require.Len(t, res.Kvs, many)
		}
		return err
	})
	t.Logf("a list: %s", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	eventually.Nil(t, wait, func(ctx context.Context) error {
		_, err := client.Delete(ctx, "many/", clientv3.WithPrefix())
		return err
	})
	t.Logf("a delete: %s", time.Since(began).Round(time.Millisecond))
	res, err := client.Get(t.Context(), "many/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.Zero(t, res.Count)
}
