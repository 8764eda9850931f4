package server

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
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
//	GHSA-chh6-ppwq-jh92  modes of existing directories      mode_test.go of sqlstore/sqlite
//	GHSA-xg4h-6gfc-h4m8  watches from a permitted key on    TestAuth of integration/compat, "what a permission covers"
//	GHSA-q8m4-xhhv-38mg  calls without a user               TestAuthMatrix of integration/compat, "nobody"
//	GHSA-rfx7-8w68-q57q  nested transactions                TestEveryPartOfATransactionNeedsPermission of server/auth/guard
//	GHSA-x35m-3gp4-4fh5  previous values, leases of puts    the same
//	GHSA-3p4g-rcw5-8298  keys of a lease (CVE-2023-32082)   TestKeysAttachedWhileALeaseIsListedNeedPermission
//	etcd 22139           nested transactions and the quota  TestCostIsThatOfTheLargerBranch of server/mvcc
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
