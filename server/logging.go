package server

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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/backend"
)

// requestLog logs every call at debug level, and those that take longer than
// slow as warnings, unless waiting is what they are for. Of the words and fields of the
// warning those are etcd's that etcd has; people look for them.
type requestLog struct {
	log       *slog.Logger
	slow      time.Duration
	count     prometheus.Counter // of the warnings
	forwarded bool               // calls come from other members, which say for whom
}

func newSlowRequests() prometheus.Counter {
	return counter("etcd_server_slow_apply_total", "The total number of requests that took longer than --warning-unary-request-duration.")
}

// waiting are the methods whose answer comes when others make way.
var waiting = map[string]bool{
	v3lockpb.Lock_Lock_FullMethodName:             true,
	v3electionpb.Election_Campaign_FullMethodName: true,
}

func (l *requestLog) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	if !l.forwarded {
		ctx = withRequestID(ctx)
	}
	ctx, steps := backend.WithSteps(ctx)
	resp, err := handler(ctx, req)
	took := time.Since(start)
	level, text := slog.LevelDebug, "request"
	slow := took > l.slow && !waiting[info.FullMethod]
	if slow {
		level, text = slog.LevelWarn, "apply request took too long"
		l.count.Inc()
	}
	if l.log.Enabled(ctx, level) {
		attrs := requestAttrs(ctx, info.FullMethod, took, req, resp, err)
		if slow {
			attrs = append(attrs, slog.String("expected-duration", l.slow.String()), slog.String("prefix", prefix(req)), slog.String("response", responseText(resp, err)))
			attrs = append(attrs, stepAttrs(steps)...)
			if err != nil {
				attrs = append(attrs, slog.String("error", status.Convert(err).Message()))
			}
		}
		attrs = append(attrs, slog.String("request_id", requestIDOf(ctx, l.forwarded)))
		if l.forwarded {
			attrs = append(attrs, slog.Any("forwarded_for", metadata.ValueFromIncomingContext(ctx, forwardedForKey)),
				slog.Any("forwarded_by", metadata.ValueFromIncomingContext(ctx, forwardedByKey)))
		}
		l.log.LogAttrs(ctx, level, text, attrs...)
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
func stepAttrs(s *backend.Steps) []slog.Attr {
	var attrs []slog.Attr
	for _, step := range []struct {
		name string
		took time.Duration
	}{
		{"confirming", s.Confirm}, {"queued", s.Queue}, {"evaluating", s.Evaluate}, {"committing", s.Commit}, {"forwarded", s.Forward},
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
func prefix(req any) string {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return "read-only range "
	case *pb.TxnRequest:
		if readOnly, _ := txnReads(r); readOnly {
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
