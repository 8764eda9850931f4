package latency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
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
	timed := func(what string, do func() (int64, error)) {
		t.Helper()
		began := time.Now()
		n, err := do()
		require.NoError(t, err, what)
		require.EqualValues(t, many, n, what)
		t.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
	}
	timed("a list", func() (int64, error) {
		res, err := client.Get(t.Context(), "many/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return 0, err
		}
		return int64(len(res.Kvs)), nil
	})
	timed("a delete", func() (int64, error) {
		res, err := client.Delete(t.Context(), "many/", clientv3.WithPrefix())
		if err != nil {
			return 0, err
		}
		return res.Deleted, nil
	})
}
