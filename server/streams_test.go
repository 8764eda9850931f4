package server

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/watch"
)

func leaderRequired(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
}

func TestWatchForwardsRequestsAndResponses(t *testing.T) {
	fake := newFakeStream()
	s := startFake(t, &fakeNode{}, fake)
	client, err := pb.NewWatchClient(dial(t, s)).Watch(testContext(t))
	require.NoError(t, err)
	require.NoError(t, client.Send(&pb.WatchRequest{})) // nothing etcd knows: ignored, and the stream continues
	require.NoError(t, client.Send(&pb.WatchRequest{
		RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}))
	require.Equal(t, struct{}{}, <-fake.requests)
	require.NoError(t, client.Send(&pb.WatchRequest{
		RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 8}}}))
	require.Equal(t, int64(8), <-fake.requests)
	require.NoError(t, client.CloseSend(), "a client that has closed its side still receives")
	fake.responses <- &watch.Response{WatchID: 7}
	r, err := client.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 7, r.WatchId)
	require.Equal(t, fakeMember, r.Header.MemberId)
	fake.Close()
	_, err = client.Recv()
	requireStatus(t, err, codes.Unavailable, "etcdserver: server stopped")
}

func TestCallsThatNeedALeader(t *testing.T) {
	n := &fakeNode{}
	fake := newFakeStream()
	s := startFake(t, n, fake)
	kv, w, l := pb.NewKVClient(dial(t, s)), pb.NewWatchClient(dial(t, s)), pb.NewLeaseClient(dial(t, s))
	ctx := testContext(t)
	_, err := kv.Range(leaderRequired(ctx), &pb.RangeRequest{Key: key})
	require.NoError(t, err)

	n.setServing(mvcc.ErrNotServing)
	_, err = kv.Range(leaderRequired(ctx), &pb.RangeRequest{Key: key})
	requireStatus(t, err, codes.Unavailable, "etcdserver: no leader")
	_, err = kv.Range(ctx, &pb.RangeRequest{Key: key})
	require.NoError(t, err, "this call did not ask for a leader")
	for name, open := range map[string]func() error{
		"watch": func() error {
			st, err := w.Watch(leaderRequired(ctx))
			require.NoError(t, err)
			_, err = st.Recv()
			return err
		},
		"keepalive": func() error {
			st, err := l.LeaseKeepAlive(leaderRequired(ctx))
			require.NoError(t, err)
			_, err = st.Recv()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { requireStatus(t, open(), codes.Unavailable, "etcdserver: no leader") })
	}
}

func TestOpenStreamsEndWhenTheLeaderIsLost(t *testing.T) {
	fake := newFakeStream()
	s := startFake(t, &fakeNode{}, fake)
	ctx := testContext(t)
	needs, err := pb.NewWatchClient(dial(t, s)).Watch(leaderRequired(ctx))
	require.NoError(t, err)
	other, err := pb.NewLeaseClient(dial(t, s)).LeaseKeepAlive(ctx)
	require.NoError(t, err)
	// Both streams are open once something came back.
	fake.responses <- &watch.Response{}
	_, err = needs.Recv()
	require.NoError(t, err)
	require.NoError(t, other.Send(&pb.LeaseKeepAliveRequest{}))
	_, err = other.Recv()
	require.NoError(t, err)

	s.streams.LoseLeader()
	_, err = needs.Recv()
	requireStatus(t, err, codes.Unavailable, "etcdserver: no leader")
	require.NoError(t, other.Send(&pb.LeaseKeepAliveRequest{}))
	_, err = other.Recv()
	require.NoError(t, err, "this stream did not ask for a leader")
}

func TestStopEndsStreamsAndLetsCallsFinish(t *testing.T) {
	n := &fakeNode{hold: make(chan struct{}), rangeResult: mvcc.RangeResult{Revision: 5}}
	fake := newFakeStream()
	s, err := newServer(testConfig(t), nodeOfFake(n, fake))
	require.NoError(t, err)
	stop := runServer(t, s)
	ctx := testContext(t)
	conn := dial(t, s)
	w, err := pb.NewWatchClient(conn).Watch(ctx)
	require.NoError(t, err)
	fake.responses <- &watch.Response{}
	_, err = w.Recv()
	require.NoError(t, err)
	hw, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	hr, err := hw.Recv()
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, hr.Status)

	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: key})
		answered <- err
	}()
	n.hold <- struct{}{} // the call is with the replica
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	_, err = w.Recv()
	requireStatus(t, err, codes.Unavailable, "etcdserver: server stopped")
	require.NoError(t, <-answered)
	<-stopped
}

func TestStopIsBounded(t *testing.T) {
	n := &fakeNode{hold: make(chan struct{})}
	cfg := testConfig(t)
	cfg.StopTimeout = 50 * time.Millisecond
	s, err := newServer(cfg, nodeOfFake(n, newFakeStream()))
	require.NoError(t, err)
	stop := runServer(t, s)
	answered := make(chan error, 1)
	conn := dial(t, s)
	go func() {
		_, err := pb.NewKVClient(conn).Range(testContext(t), &pb.RangeRequest{Key: key})
		answered <- err
	}()
	_, err = pb.NewKVClient(conn).Put(testContext(t), &pb.PutRequest{})
	require.Error(t, err, "the connection is there")
	stop() // the call never ends by itself
	require.Error(t, <-answered)
}

// integration/compat compares with etcd which other requests are refused.
func TestUnknownAlarmActionIsRefused(t *testing.T) {
	_, err := pb.NewMaintenanceClient(dial(t, startFake(t, &fakeNode{}, nil))).Alarm(testContext(t),
		&pb.AlarmRequest{Action: 9})
	requireStatus(t, err, codes.InvalidArgument, "unknown alarm action 9")
}
