package server

import (
	"context"
	"encoding/hex"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/forward"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
)

// usersAt are rows of a version at which authentication is on, and \u00e4nn there.
func usersAt(t *testing.T, version int64) *auth.Rows {
	t.Helper()
	const name = "\u00e4nn" // metadata are ASCII, names are not
	user, err := proto.Marshal(&authpb.User{Name: []byte(name), Roles: []string{"root"}})
	require.NoError(t, err)
	return &auth.Rows{
		AuthSettings: coder.AuthSettings{Version: version, Enabled: true, Revision: version + 1},
		Users:        map[string][]byte{name: user},
	}
}

// A follower authenticates the caller by the certificate, and the leader trusts its answer.
func TestForwardedCallsCarryTheCaller(t *testing.T) {
	ca, d := tlstest.NewServer(t)
	d.RequireClients(t, ca)
	p := newPair(t, overTLS(d))
	p.leader.setUsers(usersAt(t, 3))
	p.follower.setUsers(usersAt(t, 3))
	seen := make(chan metadata.MD, 1)
	p.leader.onTxn = func(ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx)
		seen <- md
		return nil
	}
	conn := dialTLS(t, p.followerServer, ca.ClientNamed(t, "\u00e4nn"))
	ctx := metadata.AppendToOutgoingContext(testContext(t), "sqlbrain-user-bin", "root", "sqlbrain-auth-revision", "9")
	_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: key})
	require.NoError(t, err)
	md := <-seen
	require.Equal(t, []string{"\u00e4nn"}, md.Get("sqlbrain-user-bin"))
	require.Equal(t, []string{"4"}, md.Get("sqlbrain-auth-revision"))
}

// Any member can end a login: the leader makes the token void for all.
func TestFollowersForwardLogouts(t *testing.T) {
	p := newPair(t)
	p.leader.setUsers(usersAt(t, 3))
	p.follower.setUsers(usersAt(t, 3))
	h := coder.HashToken("letters.1")
	info := &grpc.UnaryServerInfo{FullMethod: forward.RevokeMethod}
	notHere := func(context.Context, any) (any, error) { return nil, mvcc.ErrNotLeader }
	ctx := guard.From(testContext(t), guard.Inside)
	_, err := p.followerServer.forward.Unary(ctx, &pb.InternalAuthenticateRequest{SimpleToken: hex.EncodeToString(h[:])},
		info, notHere)
	require.NoError(t, err)
	p.leader.mu.Lock()
	defer p.leader.mu.Unlock()
	require.Contains(t, p.leader.gotAuth.Revoked, string(h[:]))
	require.True(t, p.leader.gotAuth.Enabled)
	require.EqualValues(t, 4, p.leader.gotAuth.Revision)
}

// A follower that does not know a change of users yet sends an old revision: it reads the users again, and repeats the
// call that the leader refused.
func TestRefusalForAnOldAuthRevisionIsRetried(t *testing.T) {
	p := newPair(t)
	open := usersAt(t, 3)
	open.Enabled = false // the leader is to refuse only what onTxn refuses
	p.leader.setUsers(open)
	p.follower.setUsers(usersAt(t, 2))
	var calls atomic.Int32
	p.leader.onTxn = func(context.Context) error {
		if calls.Add(1) == 1 {
			p.follower.setUsers(usersAt(t, 3)) // by now it has heard
			return rpctypes.ErrGRPCAuthOldRevision
		}
		return nil
	}
	_, err := pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{Key: key})
	require.NoError(t, err)
	require.EqualValues(t, 2, calls.Load())

	calls.Store(0)
	p.follower.setUsers(usersAt(t, 3)) // it knows the newest: the refusal stands
	p.leader.onTxn = func(context.Context) error { calls.Add(1); return rpctypes.ErrGRPCPermissionDenied }
	_, err = pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{Key: key})
	requireMessage(t, rpctypes.ErrGRPCPermissionDenied, err)
	require.EqualValues(t, 1, calls.Load())
}
