package forward

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// Whatever a member may be asked, its answer can be received.
func TestEveryMethodHasAReplyType(t *testing.T) {
	var types replyTypes
	g := grpc.NewServer()
	pb.RegisterKVServer(g, &pb.UnimplementedKVServer{})
	pb.RegisterLeaseServer(g, &pb.UnimplementedLeaseServer{})
	pb.RegisterClusterServer(g, &pb.UnimplementedClusterServer{})
	pb.RegisterMaintenanceServer(g, &pb.UnimplementedMaintenanceServer{})
	pb.RegisterAuthServer(g, &pb.UnimplementedAuthServer{})
	Register(g, struct{ Handlers }{})
	for name, service := range g.GetServiceInfo() {
		for _, m := range service.Methods {
			if m.IsClientStream || m.IsServerStream {
				continue
			}
			for range 2 {
				_, err := types.of("/" + name + "/" + m.Name)
				require.NoError(t, err)
			}
		}
	}
	for method, want := range map[string]proto.Message{
		"/etcdserverpb.KV/Put":             &pb.PutResponse{},
		"/etcdserverpb.KV/Compact":         &pb.CompactionResponse{},
		"/etcdserverpb.Auth/UserGrantRole": &pb.AuthUserGrantRoleResponse{},
		RenewMethod:                        &pb.LeaseKeepAliveResponse{},
	} {
		reply, err := types.of(method)
		require.NoError(t, err)
		require.IsType(t, want, reply)
	}
	for _, method := range []string{"", "/nothing", "/no.Service/Method", "/etcdserverpb.KV/Nothing",
		"/etcdserverpb.PutRequest/Put"} {
		_, err := types.of(method)
		require.Error(t, err, method)
	}
}

func TestOnlyTheClientsDeadlineIsReportedAsExceeded(t *testing.T) {
	far, cancelFar := context.WithTimeout(context.Background(), time.Hour)
	defer cancelFar()
	bounded, cancel := context.WithTimeout(far, time.Minute)
	defer cancel()
	exceeded := status.Error(codes.DeadlineExceeded, "the leader noticed first")
	for _, err := range []error{exceeded, fmt.Errorf("here: %w", context.DeadlineExceeded)} {
		require.ErrorIs(t, ended(far, bounded, err), mvcc.ErrTimeout)
		require.ErrorIs(t, ended(context.Background(), bounded, err), mvcc.ErrTimeout)
		near, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		within, cancel := context.WithTimeout(near, time.Hour)
		defer cancel()
		require.Equal(t, err, ended(near, within, err))
	}
	require.NoError(t, ended(far, bounded, nil))
	require.Equal(t, context.Canceled, ended(far, bounded, context.Canceled))
}

// lagging is a node that never applies anything.
type lagging struct{ Node }

func (lagging) AwaitApplied(ctx context.Context, _ replica.Update) error {
	<-ctx.Done()
	return ctx.Err()
}

// The answer to a write waits for timing.ApplyWait at most, and so short that it reaches the client before the
// client's deadline.
func TestWaitForTheWriteIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Config{Node: lagging{}, Timeout: time.Hour})
		resp := &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 5}}
		for timeout, want := range map[time.Duration]time.Duration{
			time.Second:              time.Second / 2,
			2 * timing.ApplyWait:     timing.ApplyWait,
			1000 * time.Hour:         timing.ApplyWait,
			timing.ApplyWait * 2 / 3: timing.ApplyWait / 3,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			began := time.Now()
			f.awaitApplied(ctx, "/etcdserverpb.KV/Put", &pb.PutRequest{}, resp)
			require.Equal(t, want, time.Since(began), "a client that waits for %s", timeout)
			require.NoError(t, ctx.Err())
			cancel()
		}
		began := time.Now()
		f.awaitApplied(t.Context(), "/etcdserverpb.KV/Put", &pb.PutRequest{}, resp)
		require.Equal(t, timing.ApplyWait, time.Since(began), "a client without a deadline")
		require.EqualValues(t, 5, testutil.ToFloat64(f.unapplied))
	})
}

func TestMoveLeaderIsForTheLeaderOnly(t *testing.T) {
	f := New(Config{Timeout: time.Second})
	_, err := f.Unary(context.Background(), &pb.MoveLeaderRequest{}, &grpc.UnaryServerInfo{FullMethod: methodMoveLeader},
		func(context.Context, any) (any, error) { return nil, mvcc.ErrNotLeader })
	require.ErrorIs(t, err, mvcc.ErrNotLeader)
}

func TestOnlyReads(t *testing.T) {
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{}}}
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{}}}
	for _, c := range []struct {
		req  proto.Message
		want bool
	}{
		{&pb.RangeRequest{}, true},
		{&pb.PutRequest{}, false},
		{&pb.TxnRequest{}, true},
		{&pb.TxnRequest{Success: []*pb.RequestOp{get}, Failure: []*pb.RequestOp{get}}, true},
		{&pb.TxnRequest{Success: []*pb.RequestOp{get}, Failure: []*pb.RequestOp{get, put}}, false},
		{&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{}}}}}, false},
		{&pb.AlarmRequest{Action: pb.AlarmRequest_GET}, true},
		{&pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE}, false},
	} {
		require.Equal(t, c.want, OnlyReads(c.req), c.req)
	}
}
