package upgrade

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/integration/internal/cluster"
	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	// atRest is for how long a leader must stay without requests: several of the leases below, and longer than a leader
	// is quiet that all members hear.
	atRest = 12 * time.Second
	// userRounds is how often a permission is revoked and granted.
	userRounds = 2
)

// TestMixedMembers starts members of both versions on an empty database, and has one of each lead. A leader stays while
// nothing happens, and all members know the same users.
func TestMixedMembers(t *testing.T) {
	t.Parallel()
	old := previous(t)
	c := cluster.Start(t, cluster.Config{Programs: []string{old, "", old}, Extra: []string{
		cheap, "--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--request-timeout=2m",
	}})
	protect(t, c)
	u := &upgrade{t: t, c: c}
	for _, leader := range []int{1, 0} {
		u.lead(leader)
		u.stays(leader)
		u.users()
	}
	u.same()
}

// stays waits until the leader has stayed for a while. A busy machine may replace it, but not again and again.
func (u *upgrade) stays(leader int) {
	u.t.Helper()
	endpoint := u.c.Node(leader).Endpoint()
	client := u.c.Node(leader).Client()
	eventually.True(u.t, "the leader to stay", func() bool {
		before, err := client.Status(u.t.Context(), endpoint)
		require.NoError(u.t, err)
		time.Sleep(atRest) // nothing is to happen
		after, err := client.Status(u.t.Context(), endpoint)
		require.NoError(u.t, err)
		return before.RaftTerm == after.RaftTerm
	})
}

// users requires that a change of users at one member applies to all later requests at every member.
func (u *upgrade) users() {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), stepTime)
	defer cancel()
	do := func(_ any, err error) { u.t.Helper(); require.NoError(u.t, err) }
	var roots, plain []*clientv3.Client
	for n := range u.c.Size() {
		roots = append(roots, u.c.Node(n).Client())
		plain = append(plain, harness.ClientOf(u.t, u.c.Node(n).Endpoint()))
	}
	do(roots[0].RoleAdd(ctx, "a"))
	do(roots[1].RoleGrantPermission(ctx, "a", "a/", "a0", clientv3.PermissionType(clientv3.PermReadWrite)))
	do(roots[2].UserAdd(ctx, "ann", "annpw"))
	for i := range plain {
		token, err := pb.NewAuthClient(plain[i].ActiveConnection()).Authenticate(ctx, &pb.AuthenticateRequest{Name: "ann", Password: "annpw"})
		require.NoError(u.t, err)
		as := metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token.Token)
		put := func(n int) error {
			_, err := pb.NewKVClient(plain[n].ActiveConnection()).Put(as, &pb.PutRequest{Key: []byte("a/1")})
			return err
		}
		for range userRounds {
			do(roots[i].UserGrantRole(ctx, "ann", "a"))
			for n := range plain {
				require.NoError(u.t, put(n), "granted at %d, asked at %d", i, n)
			}
			do(roots[i].UserRevokeRole(ctx, "ann", "a"))
			for n := range plain {
				require.EqualError(u.t, put(n), rpctypes.ErrGRPCPermissionDenied.Error(), "revoked at %d, asked at %d", i, n)
			}
		}
	}
	do(roots[2].UserDelete(ctx, "ann"))
	do(roots[0].RoleDelete(ctx, "a"))
}
