package status

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
)

func TestRequestLog(t *testing.T) {
	method := "/m"
	logged := func(level slog.Level, slow time.Duration, req any) string {
		var out bytes.Buffer
		l := &RequestLog{Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})), Slow: slow,
			Count: NewSlowRequests(prometheus.NewRegistry()), ReadOnly: func(*pb.TxnRequest) bool { return false }}
		_, err := l.Unary(context.Background(), req, &grpc.UnaryServerInfo{FullMethod: method},
			func(context.Context, any) (any, error) { return &pb.PutResponse{}, nil })
		require.NoError(t, err)
		return out.String()
	}
	put := &pb.PutRequest{Key: []byte("thekey"), Value: []byte("thevalue")}
	require.Empty(t, logged(slog.LevelInfo, time.Hour, put), "usual requests are not logged")
	fast := logged(slog.LevelDebug, time.Hour, put)
	require.Contains(t, fast, "level=DEBUG")
	require.Contains(t, fast, "thekey")
	slow := logged(slog.LevelInfo, 0, put)
	require.Contains(t, slow, "level=WARN")
	require.Contains(t, slow, "apply request took too long")
	require.Contains(t, slow, "expected-duration=0s")
	require.Contains(t, slow, "response=size:")
	require.Contains(t, logged(slog.LevelInfo, 0, &pb.RangeRequest{Key: []byte("thekey")}), `prefix="read-only range "`)
	for _, req := range []any{
		put,
		&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: put}}},
			Compare: []*pb.Compare{{Key: []byte("thekey"), Target: pb.Compare_VALUE,
				TargetUnion: &pb.Compare_Value{Value: []byte("thevalue")}}}},
		&pb.AuthenticateRequest{Name: "u", Password: "thevalue"},
		&pb.AuthUserAddRequest{Name: "u", Password: "thevalue"},
	} {
		require.NotContains(t, logged(slog.LevelDebug, 0, req), "thevalue", "%T", req)
	}
	method = v3lockpb.Lock_Lock_FullMethodName
	require.Empty(t, logged(slog.LevelInfo, 0, &v3lockpb.LockRequest{}), "a lock that is waited for is not slow")
}
