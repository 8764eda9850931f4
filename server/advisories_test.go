package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// The tests in this file are named after the published advisories of etcd that can apply to this
// server. Others are covered where their subject is:
//
//	GHSA-528j-9r78-wffx  passwords in the write-ahead log   TestPasswordsAndTokensAreNotStoredOrLogged: no password is in the table
//	CVE-2021-28235       passwords in /debug/requests       the same; golang.org/x/net/trace is not served
//	CVE-2018-16886       names in certificates at a gateway TestTheNameInACertificate
//	CVE-2018-1098        requests of other sites            TestPagesOfOtherOriginsChangeNothing
//	GHSA-wf43-55jj-vwq8  DNS rebinding (CVE-2018-1099)      TestHosts
//	GHSA-pm3m-32r3-7mfh  negative compaction retention      TestInvalidValuesAreRefusedByName of cmd/sqlbrain/internal/config
//	etcd 3.7.1           headers without a deadline         TestUnusedConnectionsAreClosed
//	GHSA-6vch-q96h-7gc3  handshakes without a deadline      TestUnusedTLSConnectionsAreClosed
//	GHSA-3wh4-j44w-pg92  revoked certificates over gRPC     TestRevokedCertificates
//	GHSA-5x4g-q5rc-36jp  weak ciphers by default            TestVersionsAndCiphers
//	GHSA-chh6-ppwq-jh92  modes of existing directories      sqlite_mode_test.go of sqlstore
//
// These cannot apply:
//
//	GHSA-p4g4-wgrh-qrg2, GHSA-m332-53r6-2w93  (CVE-2020-15106, CVE-2020-15112) there is no write-ahead log
//	GHSA-2xhq-gv6c-p224, GHSA-wr2v-9rpq-c35q, GHSA-j86v-2vjr-fg8f  (CVE-2020-15114, CVE-2020-15136) there is no etcd gateway and no discovery by DNS
//	etcd 3.7.1           sizes of raft snapshots, a race in the gRPC proxy: there is none of these
//	CVE-2020-15115       short passwords are allowed, as in etcd

// oneKey makes root and bob, who may only read the key k, and returns a client of each.
func oneKey(t *testing.T, s *Server) (root, bob *clientv3.Client) {
	t.Helper()
	plain, ctx := newClient(t, s), testContext(t)
	addUsers(t, plain)
	root = clientOf(t, s, "root", "rootpw")
	_, err := root.RoleAdd(ctx, "k")
	require.NoError(t, err)
	_, err = root.RoleGrantPermission(ctx, "k", "k", "", clientv3.PermissionType(clientv3.PermRead))
	require.NoError(t, err)
	_, err = root.UserAdd(ctx, "bob", "bobpw")
	require.NoError(t, err)
	_, err = root.UserGrantRole(ctx, "bob", "k")
	require.NoError(t, err)
	return root, clientOf(t, s, "bob", "bobpw")
}

// A user who may read one key watched all keys from it on.
func TestGHSAxg4h6gfch4m8WatchFromAKeyNeedsPermissionForAllKeys(t *testing.T) {
	s := startReplica(t, cheap)
	_, bob := oneKey(t, s)
	ctx := testContext(t)
	for name, opts := range map[string][]clientv3.OpOption{
		"from key": {clientv3.WithFromKey()}, "prefix": {clientv3.WithPrefix()}, "range": {clientv3.WithRange("l")},
		"two keys": {clientv3.WithRange("k\x00\x00")},
	} {
		answer := <-bob.Watch(ctx, "k", opts...)
		require.True(t, answer.Canceled, name)
		require.ErrorContains(t, answer.Err(), "permission denied", name)
		_, err := bob.Get(ctx, "k", opts...)
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, name)
	}
	stream, err := pb.NewWatchClient(bob.ActiveConnection()).Watch(ctx)
	require.NoError(t, err)
	for name, c := range map[string]*pb.WatchCreateRequest{
		"from key": {Key: []byte("k"), RangeEnd: []byte{0}}, "all keys": {RangeEnd: []byte{0}}, "the empty key": {},
		"a key before": {Key: []byte("j"), RangeEnd: []byte("k")},
	} {
		require.NoError(t, stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: c}}))
		answer, err := stream.Recv()
		require.NoError(t, err)
		require.True(t, answer.Canceled, name)
		require.Contains(t, answer.CancelReason, "permission denied", name)
	}
	require.NoError(t, stream.Send(
		&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k"),
			RangeEnd: []byte{}}}}))
	answer, err := stream.Recv()
	require.NoError(t, err)
	require.True(t, answer.Created)
	require.False(t, answer.Canceled)
}

// Operations of nested transactions were not checked.
func TestGHSArfx78w68q57qNestedTransactionsAreChecked(t *testing.T) {
	s := startReplica(t, cheap)
	root, bob := oneKey(t, s)
	ctx := testContext(t)
	_, err := root.Put(ctx, "secret", "v")
	require.NoError(t, err)
	nest := func(op clientv3.Op) clientv3.Op { return clientv3.OpTxn(nil, []clientv3.Op{op}, nil) }
	for name, op := range map[string]clientv3.Op{
		"get": clientv3.OpGet("secret"), "list": clientv3.OpGet("", clientv3.WithFromKey()),
		"put": clientv3.OpPut("secret", "w"), "delete": clientv3.OpDelete("secret"),
		"compare": clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value("secret"), "=", "v")}, nil, nil),
	} {
		for range 4 {
			op = nest(op)
			_, err := bob.Txn(ctx).Then(op).Commit()
			require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, name)
			_, err = bob.Txn(ctx).If(clientv3.Compare(clientv3.Version("k"), "=", 0)).Else(op).Commit()
			require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, name)
		}
	}
	got, err := root.Get(ctx, "secret")
	require.NoError(t, err)
	require.EqualValues(t, "v", got.Kvs[0].Value)
	_, err = bob.Txn(ctx).Then(nest(clientv3.OpGet("k"))).Commit()
	require.NoError(t, err)
}

// MemberList, Alarm, the Lease service and Compact were open to callers without a user.
func TestGHSAq8m4xhhv38mgCallersWithoutAUserAreRefused(t *testing.T) {
	s := startReplica(t, cheap)
	addUsers(t, newClient(t, s))
	for method, answer := range askEverything(t, s, dial(t, s), testContext(t)) {
		switch method {
		case pb.Auth_Authenticate_FullMethodName, "/v3electionpb.Election/Observe":
			require.NotEqual(t, "answered", answer, method)
		case pb.Auth_AuthStatus_FullMethodName: // as in etcd
		case pb.Auth_UserGet_FullMethodName: // as in etcd, the empty name is that of a caller without a user
			require.Contains(t, answer, "user name not found", method)
		case pb.KV_Txn_FullMethodName: // the request has no operation, and the answer says nothing
		default:
			require.Contains(t, answer, "user name is empty", method)
		}
	}
}

// A put in a transaction answered with the previous value, or attached a lease, without the
// permission for that.
func TestGHSAx35m3gp44fh5PutsOfTransactionsNeedPermissionForWhatTheyReadAndAttach(t *testing.T) {
	s := startReplica(t, cheap)
	root, _ := oneKey(t, s)
	ctx := testContext(t)
	_, err := root.RoleGrantPermission(ctx, "k", "write", "", clientv3.PermissionType(clientv3.PermWrite))
	require.NoError(t, err)
	bob := clientOf(t, s, "bob", "bobpw")
	lease, err := root.Grant(ctx, 60)
	require.NoError(t, err)
	_, err = root.Put(ctx, "other", "v", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	_, err = root.Put(ctx, "write", "secret")
	require.NoError(t, err)
	for name, op := range map[string]clientv3.Op{
		"previous value of a put":     clientv3.OpPut("write", "w", clientv3.WithPrevKV()),
		"lease":                       clientv3.OpPut("write", "w", clientv3.WithLease(lease.ID)),
		"previous values of a delete": clientv3.OpDelete("write", clientv3.WithPrevKV()),
	} {
		for _, op := range []clientv3.Op{op, clientv3.OpTxn(nil, []clientv3.Op{op}, nil),
			clientv3.OpTxn(nil, nil, []clientv3.Op{op})} {
			_, err := bob.Txn(ctx).Then(op).Commit()
			require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, name)
		}
	}
	_, err = bob.Delete(ctx, "write", clientv3.WithPrevKV())
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	_, err = bob.Txn(ctx).Then(clientv3.OpPut("write", "w")).Commit()
	require.NoError(t, err)
}

// LeaseTimeToLive named the keys of a lease to those who may not read them (CVE-2023-32082).
func TestGHSA3p4grcw58298KeysOfALeaseNeedPermission(t *testing.T) {
	s := startReplica(t, cheap)
	root, bob := oneKey(t, s)
	ctx := testContext(t)
	lease, err := root.Grant(ctx, 60)
	require.NoError(t, err)
	_, err = root.Put(ctx, "k", "v", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	got, err := bob.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	require.NoError(t, err)
	require.Len(t, got.Keys, 1)
	_, err = root.Put(ctx, "secret", "v", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	_, err = bob.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
}

// A login of a user without a password was logged as one with a wrong password.
func TestGHSAvjg693fvqv64LoginsOfUsersWithoutAPasswordAreLoggedAsSuch(t *testing.T) {
	var log eventually.Log
	s := startReplica(t, cheap, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	addUsers(t, newClient(t, s))
	root, ctx := clientOf(t, s, "root", "rootpw"), testContext(t)
	_, err := root.UserAddWithOptions(ctx, "certified", "", &clientv3.UserAddOptions{NoPassword: true})
	require.NoError(t, err)
	for _, password := range []string{"", "guess"} {
		_, err = pb.NewAuthClient(dial(t, s)).Authenticate(ctx,
			&pb.AuthenticateRequest{Name: "certified", Password: password})
		require.ErrorContains(t, err, "password was given for no password user")
	}
	require.Contains(t, log.String(), "no password user")
}

// The cost of a transaction did not include nested ones, so that they passed the quota.
func TestEtcd22139NestedTransactionsCountForTheQuota(t *testing.T) {
	cfg := replica.DefaultConfig()
	cfg.QuotaBytes = 1 << 20
	s := startReplicaOf(t, cfg)
	c, ctx := newClient(t, s), testContext(t)
	value := strings.Repeat("v", 600<<10)
	one, two := clientv3.OpPut("a", value), clientv3.OpPut("b", value)
	_, err := c.Txn(ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{one, clientv3.OpTxn(nil, []clientv3.Op{two}, nil)},
		nil)).Commit()
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	got, err := c.Get(ctx, "a")
	require.NoError(t, err)
	require.Empty(t, got.Kvs)
}

// A member read requests of other members without a bound on their size.
func TestEtcd22147RequestsOfMembersAreBounded(t *testing.T) {
	s := startWithPeers(t, &fakeNode{id: 44, err: mvcc.ErrNotLeader})
	conn := peerClient(t, 44, peerURLs(s)).Conn()
	_, err := pb.NewKVClient(conn).Put(testContext(t),
		&pb.PutRequest{Key: key, Value: make([]byte, DefaultConfig().MaxRequestBytes+etcd.MessageOverhead)})
	requireStatus(t, err, codes.ResourceExhausted, "larger than max")
	_, err = pb.NewKVClient(conn).Put(testContext(t),
		&pb.PutRequest{Key: key, Value: make([]byte, DefaultConfig().MaxRequestBytes/2)})
	require.EqualError(t, err, rpctypes.ErrGRPCNotLeader.Error(), "it reaches the handler")
}
