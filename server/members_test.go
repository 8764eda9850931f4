package server

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

const peerURL = "http://10.0.0.1:2380"

// joinMember makes a member of a cluster in store.
func joinMember(t *testing.T, store sqlstore.Store, name string, peerURLs ...string) *member.Registry {
	t.Helper()
	r, err := member.Join(t.Context(), member.Config{Store: store, Name: name, PeerURLs: peerURLs,
		ClientURLs: []string{"http://" + name + ":2379"}})
	require.NoError(t, err)
	return r
}

// startMember returns a client of a server of a member, and its membership.
func startMember(t *testing.T, store sqlstore.Store) (pb.ClusterClient, *member.Registry) {
	t.Helper()
	r := joinMember(t, store, "n1", peerURL)
	s := startFake(t, &fakeNode{}, nil, func(c *Config) { c.Members = r })
	return pb.NewClusterClient(dial(t, s)), r
}

func clusterHeader() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: fakeCluster, MemberId: fakeMember, RaftTerm: uint64(fakeTerm)}
}

func TestMemberListReadsTheTableIfAsked(t *testing.T) {
	store := memstore.New()
	c, n1 := startMember(t, store)
	n2 := joinMember(t, store, "n2")
	list := func(linearizable bool) []*pb.Member {
		got, err := c.MemberList(t.Context(), &pb.MemberListRequest{Linearizable: linearizable})
		require.NoError(t, err)
		require.Equal(t, clusterHeader().String(), got.Header.String())
		return got.Members
	}
	require.Len(t, list(false), 1, "it has not looked since the other one joined")
	members := list(true)
	require.Len(t, members, 2)
	require.Less(t, members[0].ID, members[1].ID)
	require.Len(t, list(false), 2)
	for _, m := range members {
		self := n1.Self()
		if m.Name == "n2" {
			self = n2.Self()
		}
		require.Equal(t, (&pb.Member{ID: self.ID, Name: self.Name, PeerURLs: self.PeerURLs,
			ClientURLs: self.ClientURLs}).String(), m.String())
	}
	require.NoError(t, store.Close())
	_, err := c.MemberList(t.Context(), &pb.MemberListRequest{Linearizable: true})
	require.Equal(t, rpctypes.ErrGRPCStopped.Error(), err.Error())
	require.Len(t, list(false), 2, "without the database as they were last seen")
}

func TestMemberChanges(t *testing.T) {
	store, ctx := memstore.New(), t.Context()
	c, n1 := startMember(t, store)
	add, err := c.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{"http://10.0.0.2:2380"}})
	require.NoError(t, err)
	require.Equal(t, clusterHeader().String(), add.Header.String())
	require.Empty(t, add.Member.Name)
	require.Equal(t, []string{"http://10.0.0.2:2380"}, add.Member.PeerURLs)
	require.Len(t, add.Members, 2)

	update, err := c.MemberUpdate(ctx, &pb.MemberUpdateRequest{ID: add.Member.ID,
		PeerURLs: []string{"http://10.0.0.3:2380"}})
	require.NoError(t, err)
	require.Equal(t, clusterHeader().String(), update.Header.String())
	require.Len(t, update.Members, 2)
	n2 := joinMember(t, store, "n2", "http://10.0.0.3:2380")
	require.Equal(t, add.Member.ID, n2.Self().ID)

	remove, err := c.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: add.Member.ID})
	require.NoError(t, err)
	require.Equal(t, clusterHeader().String(), remove.Header.String())
	require.Len(t, remove.Members, 1)
	require.Equal(t, n1.Self().ID, remove.Members[0].ID)

	_, err = c.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{"http://10.0.0.4:2380"}, IsLearner: true})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	require.ErrorContains(t, err, "learners are not supported")

	n3 := joinMember(t, store, "n3")
	_, err = n3.Remove(ctx, n1.Self().ID)
	require.NoError(t, err)
	_, err = c.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{"http://10.0.0.4:2380"}})
	require.Equal(t, rpctypes.ErrGRPCStopped.Error(), err.Error(), "one that was removed has no say")
}

// JSON leaves empty lists out, and etcd's members always have peer URLs: clients such as etcd3gw rely on them.
func TestSingleMemberListsPeerURLs(t *testing.T) {
	clients := []string{"http://n1:2379"}
	for _, peers := range [][]string{nil, {peerURL}} {
		s := startFake(t, &fakeNode{}, nil, func(c *Config) {
			c.Name, c.AdvertiseClientURLs, c.PeerURLs = "n1", clients, peers
		})
		want := peers
		if len(want) == 0 {
			want = clients
		}
		for _, linearizable := range []bool{false, true} {
			got, err := pb.NewClusterClient(dial(t, s)).MemberList(t.Context(),
				&pb.MemberListRequest{Linearizable: linearizable})
			require.NoError(t, err)
			require.Equal(t, (&pb.MemberListResponse{Header: clusterHeader(),
				Members: []*pb.Member{{ID: fakeMember, Name: "n1", PeerURLs: want, ClientURLs: clients}}}).String(), got.String())
		}
		_, body := call(t, s, http.MethodPost, "/v3/cluster/member/list", "{}")
		require.Contains(t, body, `"peerURLs":["`+want[0]+`"]`)
	}
}
