package feed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/sqlbrain/sqlbrain/server/cluster/feed/feedpb"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/watch"
)

// The first version used etcd's messages. Members of that version and of this one may be
// in one cluster during an upgrade.
func TestTheFirstVersionUnderstandsTheMessages(t *testing.T) {
	require.Equal(t, "/sqlbrain.Peer/Position", feedpb.Peer_Position_FullMethodName)
	require.Equal(t, "/sqlbrain.Peer/Follow", feedpb.Peer_Follow_FullMethodName)
	for name, c := range map[string]struct{ now, first proto.Message }{
		"request": {
			&feedpb.FollowRequest{Start: &feedpb.FollowRequest_Start{Revision: 7}},
			&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{StartRevision: 7}}},
		},
		"update": {
			&feedpb.Update{
				Position:    &feedpb.Position{ClusterId: 1, MemberId: 2, Revision: 3, Term: 4},
				AuthVersion: 5, CompactRevision: -1, Fragment: true,
				Events: []*feedpb.Event{
					{Kv: &feedpb.Event_KeyValue{Key: []byte("k"), Value: []byte("v"), CreateRevision: 6, ModRevision: 7, Version: 8, Lease: 9}, Previous: &feedpb.Event_Previous{ModRevision: 6}},
					{Type: feedpb.Event_DELETE, Kv: &feedpb.Event_KeyValue{Key: []byte("k"), ModRevision: 8}},
				},
			},
			&pb.WatchResponse{
				Header:  &pb.ResponseHeader{ClusterId: 1, MemberId: 2, Revision: 3, RaftTerm: 4},
				WatchId: 5, CompactRevision: -1, Fragment: true,
				Events: []*mvccpb.Event{
					{Kv: &mvccpb.KeyValue{Key: []byte("k"), Value: []byte("v"), CreateRevision: 6, ModRevision: 7, Version: 8, Lease: 9}, PrevKv: &mvccpb.KeyValue{ModRevision: 6}},
					{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: 8}},
				},
			},
		},
		"compacted": {&feedpb.Update{Compacted: true, CompactRevision: 3}, &pb.WatchResponse{Canceled: true, CompactRevision: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			requireSameBytes(t, c.now, c.first)
			requireSameBytes(t, c.first, c.now)
		})
	}
}

// TestMembersOfProtocolsThatDoNotFitRefuseAFeed: the leader, or a follower whose leader does not look at protocols.
func TestMembersOfProtocolsThatDoNotFitRefuseAFeed(t *testing.T) {
	now, newer := member.Protocols{Newest: 1}, member.Protocols{Newest: 3, Oldest: 2}
	l := newLeader(t, watch.Config{})
	s := newService(l)
	c := newClient(t, serve(t, s, l))

	s.protocols, c.protocols = newer, now
	err := failure(follow(t, c, 1))
	require.ErrorContains(t, err, "the leader refuses the feed")
	require.ErrorContains(t, err, "it needs protocol 2 or later, and this program has 1; upgrade this program")

	s.protocols, c.protocols = newer, newer
	_, err = follow(t, c, 1).Next()
	require.NoError(t, err)

	for what, sent := range map[string]*feedpb.Protocols{"an earlier version": nil, "the version before": {Newest: 1}} {
		earlier := newClient(t, serve(t, scripted{messages: []*feedpb.Update{{Protocols: sent, Position: &feedpb.Position{}}}}, l))
		earlier.protocols = newer
		err = failure(follow(t, earlier, 1))
		require.ErrorIs(t, err, member.ErrProtocol, what)
		require.ErrorContains(t, err, "and this program needs 2 or later; upgrade that member", what)
		earlier.protocols = now
		_, err = follow(t, earlier, 1).Next()
		require.NoError(t, err, what)
	}
	sent := &feedpb.FollowRequest{Start: &feedpb.FollowRequest_Start{Revision: 1}, Protocols: &feedpb.Protocols{Newest: 9, Oldest: 9}}
	ignored := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{StartRevision: 1}}}
	b, err := proto.Marshal(sent)
	require.NoError(t, err)
	var first pb.WatchRequest
	require.NoError(t, proto.Unmarshal(b, &first))
	require.Empty(t, cmp.Diff(ignored, &first, protocmp.Transform(), protocmp.IgnoreUnknown()), "the first version ignores it")
}

// requireSameBytes requires that sent is received as want.
func requireSameBytes(t *testing.T, sent, want proto.Message) {
	t.Helper()
	b, err := proto.Marshal(sent)
	require.NoError(t, err)
	got := want.ProtoReflect().New().Interface()
	require.NoError(t, proto.Unmarshal(b, got))
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
}
