package status

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// RequestLog logs every call at debug level, and those that take longer than
// Slow as warnings, unless waiting is what they are for. Of the words and fields of the
// warning those are etcd's that etcd has; people look for them.
type RequestLog struct {
	Log   *slog.Logger
	Slow  time.Duration
	Count prometheus.Counter // of the warnings
	// ReadOnly reports whether a transaction has no other operations than ranges.
	ReadOnly func(*pb.TxnRequest) bool
	// Forwarded describes a call that another member forwarded; nil: the calls are clients' own, and get an id.
	Forwarded func(context.Context) []slog.Attr
}

// NewSlowRequests returns the counter of slow requests, registered with r.
func NewSlowRequests(r prometheus.Registerer) prometheus.Counter {
	return counter(r, "etcd_server_slow_apply_total",
		"The total number of requests that took longer than --warning-unary-request-duration.")
}

// waiting are the methods whose answer comes when others make way.
var waiting = map[string]bool{
	v3lockpb.Lock_Lock_FullMethodName:             true,
	v3electionpb.Election_Campaign_FullMethodName: true,
}

// Unary is a gRPC interceptor.
func (l *RequestLog) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	if l.Forwarded == nil {
		ctx = link.WithRequestID(ctx)
	}
	ctx, steps := mvcc.WithSteps(ctx)
	resp, err := handler(ctx, req)
	took := time.Since(start)
	level, text := slog.LevelDebug, "request"
	slow := took > l.Slow && !waiting[info.FullMethod]
	if slow {
		level, text = slog.LevelWarn, "apply request took too long"
		l.Count.Inc()
	}
	if l.Log.Enabled(ctx, level) {
		attrs := requestAttrs(ctx, info.FullMethod, took, req, resp, err)
		if slow {
			attrs = append(attrs, slog.String("expected-duration", l.Slow.String()), slog.String("prefix", l.prefix(req)),
				slog.String("response", responseText(resp, err)))
			attrs = append(attrs, stepAttrs(steps)...)
			if err != nil {
				attrs = append(attrs, slog.String("error", status.Convert(err).Message()))
			}
		}
		attrs = append(attrs, slog.String("request_id", link.RequestID(ctx, l.Forwarded != nil)))
		if l.Forwarded != nil {
			attrs = append(attrs, l.Forwarded(ctx)...)
		}
		l.Log.LogAttrs(ctx, level, text, attrs...)
	}
	return resp, err
}

// requestAttrs has durations as etcd writes them, with their unit: as numbers they would
// be nanoseconds in JSON.
func requestAttrs(ctx context.Context, method string, took time.Duration, req, resp any, err error) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("method", method),
		slog.String("took", took.String()),
		slog.String("code", status.Code(err).String()),
	}
	if p, ok := peer.FromContext(ctx); ok {
		attrs = append(attrs, slog.String("remote", p.Addr.String()))
	}
	if m, ok := req.(proto.Message); ok {
		attrs = append(attrs, slog.Int("request_bytes", proto.Size(m)))
	}
	if m, ok := resp.(proto.Message); ok && err == nil {
		attrs = append(attrs, slog.Int("response_bytes", proto.Size(m)))
	}
	if s := requestText(req); s != "" {
		attrs = append(attrs, slog.String("request", s))
	}
	return attrs
}

// stepAttrs are the steps that took time at all.
func stepAttrs(s *mvcc.Steps) []slog.Attr {
	var attrs []slog.Attr
	for _, step := range []struct {
		name string
		took time.Duration
	}{
		{"confirming", s.Confirm}, {"queued", s.Queue}, {"evaluating", s.Evaluate}, {"committing", s.Commit},
		{"forwarded", s.Forward},
	} {
		if step.took > 0 {
			attrs = append(attrs, slog.String(step.name, step.took.String()))
		}
	}
	if len(attrs) == 0 {
		return nil
	}
	return []slog.Attr{slog.GroupAttrs("steps", attrs...)}
}

// prefix is etcd's word for a kind of request.
func (l *RequestLog) prefix(req any) string {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return "read-only range "
	case *pb.TxnRequest:
		if l.ReadOnly(r) {
			return "read-only txn "
		}
	}
	return ""
}

// responseText describes a response without what is in it.
func responseText(resp any, err error) string {
	m, ok := resp.(proto.Message)
	if !ok || err != nil {
		return ""
	}
	size := fmt.Sprintf("size:%d", proto.Size(m))
	if r, ok := resp.(*pb.RangeResponse); ok {
		return fmt.Sprintf("range_response_count:%d %s", len(r.GetKvs()), size)
	}
	return size
}

// requestText describes a request on keys without the values in it. Other
// requests are not described: those of the Auth service hold passwords.
func requestText(req any) string {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return r.String()
	case *pb.DeleteRangeRequest:
		return r.String()
	case *pb.CompactionRequest:
		return r.String()
	case *pb.PutRequest:
		if s, ok := pb.NewLoggablePutRequest(r).(interface{ String() string }); ok {
			return s.String()
		}
	case *pb.TxnRequest:
		return pb.NewLoggableTxnRequest(r).String()
	}
	return ""
}
