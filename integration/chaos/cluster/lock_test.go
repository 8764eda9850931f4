package cluster

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"golang.org/x/sync/errgroup"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// TestLocksExclude: a lock is one lock on all nodes, whether a client takes it with
// the nodes' Lock service or with its own mutex: increments that read and write in
// two steps are not lost.
func TestLocksExclude(t *testing.T) {
	const increments = 10
	ctx, cancel := context.WithTimeout(t.Context(), 2*wait)
	defer cancel()
	c := harness.StartCluster(t, harness.ClusterConfig{Patient: true})
	var group errgroup.Group
	var holders atomic.Int32
	locked := func(client *clientv3.Client) error {
		if n := holders.Add(1); n != 1 {
			t.Errorf("%d hold the lock", n)
		}
		defer holders.Add(-1)
		return increment(ctx, client)
	}
	for i := range c.Size() {
		client := c.Node(i).Client()
		service := v3lockpb.NewLockClient(client.ActiveConnection())
		group.Go(func() error {
			for range increments {
				held, err := service.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("lock")})
				if err != nil {
					return err
				}
				if err := locked(client); err != nil {
					return err
				}
				if _, err := service.Unlock(ctx, &v3lockpb.UnlockRequest{Key: held.Key}); err != nil {
					return err
				}
			}
			return nil
		})
		session, err := concurrency.NewSession(client)
		require.NoError(t, err)
		defer func() { require.NoError(t, session.Close()) }()
		mutex := concurrency.NewMutex(session, "lock")
		group.Go(func() error {
			for range increments {
				if err := mutex.Lock(ctx); err != nil {
					return err
				}
				if err := locked(client); err != nil {
					return err
				}
				if err := mutex.Unlock(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	r, err := c.Client().Get(ctx, "counter")
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(2*c.Size()*increments), string(r.Kvs[0].Value))
}

func increment(ctx context.Context, client *clientv3.Client) error {
	r, err := client.Get(ctx, "counter")
	if err != nil {
		return err
	}
	count := 0
	if len(r.Kvs) > 0 {
		if count, err = strconv.Atoi(string(r.Kvs[0].Value)); err != nil {
			return err
		}
	}
	_, err = client.Put(ctx, "counter", strconv.Itoa(count+1))
	return err
}
