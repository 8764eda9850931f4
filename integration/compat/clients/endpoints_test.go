package clients

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/naming/endpoints"
)

// TestEndpoints: the naming directory that gRPC clients resolve by.
func TestEndpoints(t *testing.T) {
	n, ctx := start(t), bounded(t)
	m, err := endpoints.NewManager(n.Client(), "service")
	require.NoError(t, err)
	updates, err := m.NewWatchChannel(ctx)
	require.NoError(t, err)
	lease, err := n.Client().Grant(ctx, 60)
	require.NoError(t, err)
	require.NoError(t, m.AddEndpoint(ctx, "service/a", endpoints.Endpoint{Addr: "a:1"}))
	got := <-updates
	require.Len(t, got, 1)
	require.Equal(t, endpoints.Add, got[0].Op)
	require.NoError(t, m.Update(ctx, []*endpoints.UpdateWithOpts{
		endpoints.NewAddUpdateOpts("service/b", endpoints.Endpoint{Addr: "b:1"}, clientv3.WithLease(lease.ID)),
		endpoints.NewDeleteUpdateOpts("service/a"),
	}))
	require.Len(t, <-updates, 2, "one transaction comes as one update")
	list, err := m.List(ctx)
	require.NoError(t, err)
	require.Equal(t, endpoints.Key2EndpointMap{"service/b": {Addr: "b:1"}}, list)
	_, err = n.Client().Revoke(ctx, lease.ID)
	require.NoError(t, err)
	got = <-updates
	require.Len(t, got, 1)
	require.Equal(t, endpoints.Delete, got[0].Op)
}
