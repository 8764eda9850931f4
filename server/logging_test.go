package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
)

func TestRequestLog(t *testing.T) {
	method := "/m"
	logged := func(level slog.Level, slow time.Duration, req any) string {
		var out bytes.Buffer
		l := &requestLog{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})), slow: slow, count: newSlowRequests()}
		_, err := l.unary(context.Background(), req, &grpc.UnaryServerInfo{FullMethod: method},
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
		&pb.TxnRequest{Success: []*pb.RequestOp{opPut(put)}, Compare: []*pb.Compare{{Key: key, Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte("thevalue")}}}},
		&pb.AuthenticateRequest{Name: "u", Password: "thevalue"},
		&pb.AuthUserAddRequest{Name: "u", Password: "thevalue"},
	} {
		require.NotContains(t, logged(slog.LevelDebug, 0, req), "thevalue", "%T", req)
	}
	method = v3lockpb.Lock_Lock_FullMethodName
	require.Empty(t, logged(slog.LevelInfo, 0, &v3lockpb.LockRequest{}), "a lock that is waited for is not slow")
}

func TestCausesAreLoggedNotSent(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	err := answer(context.Background(), log, "/m", errors.New("access denied for root"))
	require.NotContains(t, err.Error(), "root")
	require.Contains(t, out.String(), "access denied for root")
}

// A put that is slow says where its time went, and is counted.
func TestASlowRequestTellsItsSteps(t *testing.T) {
	var out lockedBuffer
	registry := prometheus.NewRegistry()
	s := startBackend(t, func(c *Config) {
		c.Logger, c.SlowRequest, c.Registry = slog.New(slog.NewJSONHandler(&out, nil)), time.Nanosecond, registry
	})
	_, err := newClient(t, s).Put(testContext(t), "thekey", "thevalue")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^.*"method":"/etcdserverpb.KV/Put".*$`).FindString(out.String())
	for _, want := range []string{
		`"level":"WARN"`, `"msg":"apply request took too long"`, `"took":"[0-9.]+(µs|ms|s)"`, `"expected-duration":"1ns"`, "thekey", `"response":"size:`,
		`"steps":{"queued":"[0-9.]+(ns|µs|ms|s)","evaluating":"[^"]+","committing":"[^"]+"}`,
	} {
		require.Regexp(t, want, line)
	}
	require.NotContains(t, line, "thevalue")
	require.Equal(t, 1.0, testutil.ToFloat64(s.services.slow))
	_, err = newClient(t, s).Compact(testContext(t), 99)
	require.Error(t, err)
	require.Regexp(t, `took too long.*"method":"/etcdserverpb.KV/Compact".*"error":"etcdserver: mvcc: required revision is a future revision"`, out.String())
}
