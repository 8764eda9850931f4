package server

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// disturbed is a lessor that calls listing before it lists the keys of a lease, and users that cannot be read in the
// table while it is away.
type disturbed struct {
	etcd.Lessor
	guard.Users
	listing func()
	away    atomic.Bool
}

func (d *disturbed) TimeToLive(ctx context.Context, as auth.Permit, id int64, keys bool) (lease.Status, error) {
	d.listing()
	return d.Lessor.TimeToLive(ctx, as, id, keys)
}

func (d *disturbed) Refresh(ctx context.Context) (*auth.Rows, error) {
	if d.away.Load() {
		return nil, mvcc.ErrTimeout
	}
	return d.Users.Refresh(ctx)
}

func startDisturbed(t *testing.T) (*Server, *disturbed) {
	t.Helper()
	d := &disturbed{}
	s, _ := startOn(t, memstore.New(), replicaConfig(), func(n *node) {
		d.Lessor, d.Users = must(n.Lessor()), n.users
		n.Lessor, n.users = func() (etcd.Lessor, error) { return d, nil }, d
	}, cheap)
	return s, d
}

// TestKeysAttachedWhileALeaseIsListedNeedPermission: the keys that are listed need it, and not those that were
// attached when the call began.
func TestKeysAttachedWhileALeaseIsListedNeedPermission(t *testing.T) {
	s, d := startDisturbed(t)
	root, bob := oneKey(t, s)
	ctx := testContext(t)
	granted, err := root.Grant(ctx, 60)
	require.NoError(t, err)
	_, err = root.Put(ctx, "k", "v", clientv3.WithLease(granted.ID))
	require.NoError(t, err)
	d.listing = func() {
		_, err := root.Put(ctx, "secret", "v", clientv3.WithLease(granted.ID))
		require.NoError(t, err)
	}
	_, err = bob.TimeToLive(ctx, granted.ID, clientv3.WithAttachedKeys())
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
}

// TestAWatchThatCannotBeAuthorizedIsNotDenied: etcd's client takes a refusal for the last word, but opens the watches
// of a stream that ended again.
func TestAWatchThatCannotBeAuthorizedIsNotDenied(t *testing.T) {
	s, d := startDisturbed(t)
	_, bob := oneKey(t, s)
	d.away.Store(true)
	stream, err := pb.NewWatchClient(bob.ActiveConnection()).Watch(testContext(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(
		&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte(
			"other")}}}))
	answer, err := stream.Recv()
	require.Nil(t, answer)
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
}
