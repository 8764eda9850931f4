package latency

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	// wait is far longer than anything here takes.
	wait = 2 * time.Minute
	// many is more keys than pages of a thousand, read one after the other, bring within the usual time of a request.
	many = 100_000
)

// roundTrips are the distances to the database.
var roundTrips = []time.Duration{2 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond}

func TestFarDatabase(t *testing.T) {
	harness.NeedsDatabase(t)
	for _, d := range roundTrips {
		t.Run(d.String(), func(t *testing.T) {
			proxy, url := harness.StartProxy(t, enginetest.Database(t))
			proxy.Delay(d)
			c := harness.StartCluster(t, harness.ClusterConfig{Datastore: func(int) string { return url },
				Extra: []string{"--request-timeout=2m"}})
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			putsAndLists(ctx, t, c)
			lease := grant(ctx, t, c)
			failover(ctx, t, c)
			alive(ctx, t, c, lease)
			manyKeys(t, c)
		})
	}
}

// putsAndLists writes through each node and reads through the next one.
func putsAndLists(ctx context.Context, t *testing.T, c *harness.Cluster) {
	t.Helper()
	for i := range c.Size() {
		key := fmt.Sprintf("puts/%d", i)
		put, err := c.Node(i).Client().Put(ctx, key, "v")
		if err != nil {
			t.Fatal(err)
		}
		list, err := c.Node((i+1)%c.Size()).Client().Get(ctx, "puts/", clientv3.WithPrefix(), clientv3.WithLimit(2))
		if err != nil {
			t.Fatal(err)
		}
		if list.Count != int64(i+1) || list.Header.Revision < put.Header.Revision {
			t.Fatalf("after %d puts a list has %d keys at revision %d, the last put was at %d", i+1, list.Count,
				list.Header.Revision, put.Header.Revision)
		}
	}
}

// grant grants a lease with a key.
func grant(ctx context.Context, t *testing.T, c *harness.Cluster) clientv3.LeaseID {
	t.Helper()
	client := c.Client()
	lease, err := client.Grant(ctx, int64(wait/time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(ctx, "leased", "v", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	return lease.ID
}

// alive expects that the lease and its key are there, and revokes it.
func alive(ctx context.Context, t *testing.T, c *harness.Cluster, lease clientv3.LeaseID) {
	t.Helper()
	client := c.Client()
	if _, err := client.KeepAliveOnce(ctx, lease); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Revoke(ctx, lease); err != nil {
		t.Fatal(err)
	}
	if res, err := client.Get(ctx, "leased"); err != nil || res.Count != 0 {
		t.Fatalf("the key of a revoked lease: %v, %v", res, err)
	}
}

// failover kills the leader, and writes through another node.
func failover(ctx context.Context, t *testing.T, c *harness.Cluster) {
	t.Helper()
	leader := c.Leader()
	client := c.Node((leader + 1) % c.Size()).Client()
	eventually.True(t, "each node to hear the leader", func() bool {
		for i := range c.Size() {
			if _, err := c.Node(i).Client().Get(ctx, "puts/0"); err != nil {
				return false
			}
		}
		return true
	})
	began := time.Now()
	c.Kill(leader)
	eventually.True(t, "a write after the leader was killed", func() bool {
		_, err := client.Put(ctx, "after", "v")
		return err == nil
	})
	t.Logf("writes continued %s after the leader was killed", time.Since(began).Round(time.Millisecond))
	c.Start(leader)
}

// manyKeys lists and deletes many keys.
func manyKeys(t *testing.T, c *harness.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*wait)
	defer cancel()
	client := c.Client()
	harness.Fill(t, client, "many/", many, "v")
	timed := func(what string, do func() (int64, error)) {
		t.Helper()
		began := time.Now()
		if n, err := do(); err != nil || n != many {
			t.Errorf("%s: %d keys, %v", what, n, err)
		}
		t.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
	}
	timed("a list", func() (int64, error) {
		res, err := client.Get(ctx, "many/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return 0, err
		}
		return int64(len(res.Kvs)), nil
	})
	timed("a delete", func() (int64, error) {
		res, err := client.Delete(ctx, "many/", clientv3.WithPrefix())
		if err != nil {
			return 0, err
		}
		return res.Deleted, nil
	})
}
