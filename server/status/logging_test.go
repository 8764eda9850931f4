package status

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
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

// The log renders what clients send, when the database is slow.
func TestTextOfRequestIsBounded(t *testing.T) {
	long, many := bytes.Repeat([]byte{0}, 1<<20), make([]*pb.RequestOp, 10_000)
	for i := range many {
		many[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k")}}}
	}
	deep := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: long}}}}}
	for range 5000 {
		deep = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: deep}}}}
	}
	unknown := &pb.RangeRequest{}
	unknown.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), long))
	for _, req := range []any{
		&pb.RangeRequest{Key: long, RangeEnd: long}, &pb.DeleteRangeRequest{Key: []byte("k"), RangeEnd: long},
		&pb.PutRequest{Key: long, Value: long}, &pb.TxnRequest{Failure: many}, deep, unknown,
		&pb.TxnRequest{Compare: []*pb.Compare{{RangeEnd: long, TargetUnion: &pb.Compare_Value{Value: long}}}},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		text := requestText(req)
		runtime.ReadMemStats(&after)
		require.Less(t, len(text), textBytes+100, "%T", req)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "%T", req)
		if req != any(unknown) {
			require.Regexp(t, `…\(\d+ bytes\)$`, text)
		}
	}
}

func TestTextOfRequestIsThatOfEtcd(t *testing.T) {
	get := &pb.RangeRequest{Key: []byte("a\x00"), RangeEnd: []byte("ö"), Limit: 3, KeysOnly: true,
		SortOrder: pb.RangeRequest_DESCEND}
	put := &pb.PutRequest{Key: []byte("k"), Value: []byte("value"), Lease: 7, PrevKv: true}
	txn := &pb.TxnRequest{
		Compare: []*pb.Compare{
			{Key: []byte("k"), Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte("value")}},
			{Key: []byte("l"), RangeEnd: []byte("m"), Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{}},
		},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: put}}, {}},
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: get}}}}}}},
	}
	compaction := &pb.CompactionRequest{Revision: 5, Physical: true}
	require.Equal(t, get.String(), requestText(get))
	require.Equal(t, compaction.String(), requestText(compaction))
	require.Equal(t, fmt.Sprint(pb.NewLoggablePutRequest(put)), requestText(put))
	require.Equal(t, pb.NewLoggableTxnRequest(txn).String(), requestText(txn))
}
