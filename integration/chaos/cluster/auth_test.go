package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// clientOf returns a user's client of some nodes.
func clientOf(t *testing.T, user, password string, endpoints ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, Username: user, Password: password, DialTimeout: wait, Logger: zap.NewNop(),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() }) // its token may be refused by then
	return c
}

// TestUsersOfAllNodes: all nodes know the same users, whichever node is asked, and a
// revoked permission is revoked on all of them at once.
func TestUsersOfAllNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*wait)
	defer cancel()
	c := harness.StartCluster(t, harness.ClusterConfig{Patient: true, Extra: []string{"--bcrypt-cost=4"}})
	leader, err := c.AwaitLeader(ctx)
	require.NoError(t, err)
	follower := (leader + 1) % c.Size()
	do := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
	setup := c.Node(follower).Client() // changes are sent on
	do(setup.UserAdd(ctx, "root", "rootpw"))
	do(setup.UserGrantRole(ctx, "root", "root"))
	do(setup.RoleAdd(ctx, "a"))
	do(setup.RoleGrantPermission(ctx, "a", "a/", "a0", clientv3.PermissionType(clientv3.PermReadWrite)))
	do(setup.UserAdd(ctx, "ann", "annpw"))
	do(setup.UserGrantRole(ctx, "ann", "a"))
	do(setup.AuthEnable(ctx))
	st, err := setup.AuthStatus(ctx)
	require.NoError(t, err)
	require.True(t, st.Enabled)

	// A token of one node is good on all.
	plain := make([]*clientv3.Client, c.Size())
	for i := range plain {
		plain[i] = c.Node(i).Client()
	}
	token := func(i int) context.Context {
		resp, err := pb.NewAuthClient(plain[i].ActiveConnection()).Authenticate(ctx,
			&pb.AuthenticateRequest{Name: "ann", Password: "annpw"})
		require.NoError(t, err)
		return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, resp.Token)
	}
	annDoes := func(as context.Context, i int) (put, get error) {
		kv := pb.NewKVClient(plain[i].ActiveConnection())
		_, put = kv.Put(as, &pb.PutRequest{Key: []byte("a/1")})
		_, get = kv.Range(as, &pb.RangeRequest{Key: []byte("a/1")})
		return put, get
	}
	for i := range plain {
		as := token(i)
		for j := range plain {
			put, get := annDoes(as, j)
			require.NoError(t, put, "token of node %d on node %d", i, j)
			require.NoError(t, get, "token of node %d on node %d", i, j)
			kv := pb.NewKVClient(plain[j].ActiveConnection())
			_, err := kv.Put(as, &pb.PutRequest{Key: []byte("b")})
			require.EqualError(t, err, rpctypes.ErrGRPCPermissionDenied.Error())
			_, err = kv.Put(ctx, &pb.PutRequest{Key: []byte("a/1")})
			require.EqualError(t, err, rpctypes.ErrGRPCUserEmpty.Error())
		}
	}

	// A change that one node acknowledged applies to every request that begins later, on every node.
	root := make([]*clientv3.Client, c.Size())
	for i := range root {
		root[i] = clientOf(t, "root", "rootpw", c.Node(i).Endpoint())
	}
	as := token(leader)
	for round := range 5 {
		for i := range root {
			do(root[i].UserRevokeRole(ctx, "ann", "a"))
			for j := range plain {
				put, get := annDoes(as, j)
				for _, err := range []error{put, get} {
					require.EqualError(t, err, rpctypes.ErrGRPCPermissionDenied.Error(), "round %d, revoked at %d, asked at %d",
						round, i, j)
				}
			}
			do(root[i].UserGrantRole(ctx, "ann", "a"))
			for j := range plain {
				put, get := annDoes(as, j)
				require.NoError(t, put, "round %d, granted at %d, asked at %d", round, i, j)
				require.NoError(t, get, "round %d, granted at %d, asked at %d", round, i, j)
			}
		}
	}

	// Watches and leases of a follower.
	ann := clientOf(t, "ann", "annpw", c.Node(follower).Endpoint())
	watching := ann.Watch(ctx, "a/", clientv3.WithPrefix())
	lease, err := ann.Grant(ctx, 60)
	require.NoError(t, err)
	do(ann.Put(ctx, "a/leased", "v", clientv3.WithLease(lease.ID)))
	do(ann.KeepAliveOnce(ctx, lease.ID))
	require.Len(t, (<-watching).Events, 1)
	denied := <-ann.Watch(ctx, "b")
	require.ErrorContains(t, denied.Err(), "permission denied")
	other, err := root[follower].Grant(ctx, 60)
	require.NoError(t, err)
	do(root[follower].Put(ctx, "b", "v", clientv3.WithLease(other.ID)))
	_, err = ann.KeepAliveOnce(ctx, other.ID)
	require.ErrorContains(t, err, "permission denied")
	_, err = ann.Compact(ctx, 2)
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)

	// A new leader knows users and tokens.
	everywhere := clientOf(t, "ann", "annpw", c.Endpoints()...)
	do(everywhere.Put(ctx, "a/2", "before"))
	c.Kill(leader)
	eventually.True(t, "a write by the user on every node", func() bool {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := everywhere.Put(attempt, "a/2", "after")
		return err == nil
	})
	put, get := annDoes(as, follower)
	require.NoError(t, put)
	require.NoError(t, get)
	do(root[follower].UserChangePassword(ctx, "ann", "other"))
	for i := range plain {
		if i == leader {
			continue
		}
		put, get := annDoes(as, i)
		require.EqualError(t, put, rpctypes.ErrGRPCInvalidAuthToken.Error())
		require.EqualError(t, get, rpctypes.ErrGRPCInvalidAuthToken.Error())
	}
	do(root[follower].AuthDisable(ctx))
	c.Start(leader)
	for i := range plain {
		eventually.True(t, "a write without a user", func() bool { _, err := plain[i].Put(ctx, "b", "v"); return err == nil })
	}
}
