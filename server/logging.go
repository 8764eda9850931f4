package server

import (
	"context"
	"log/slog"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// requestLog logs every call at debug level, and those that take longer than
// slow as warnings, unless waiting is what they are for.
type requestLog struct {
	log       *slog.Logger
	slow      time.Duration
	forwarded bool // calls come from other members, which say for whom
}

// waiting are the methods whose answer comes when others make way.
var waiting = map[string]bool{
	v3lockpb.Lock_Lock_FullMethodName:             true,
	v3electionpb.Election_Campaign_FullMethodName: true,
}

func (l *requestLog) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	resp, err := handler(ctx, req)
	took := time.Since(start)
	level, text := slog.LevelDebug, "request"
	if took > l.slow && !waiting[info.FullMethod] {
		level, text = slog.LevelWarn, "slow request"
	}
	if l.log.Enabled(ctx, level) {
		attrs := requestAttrs(ctx, info.FullMethod, took, req, resp, err)
		if l.forwarded {
			attrs = append(attrs, slog.Any("forwarded_for", metadata.ValueFromIncomingContext(ctx, forwardedForKey)),
				slog.Any("forwarded_by", metadata.ValueFromIncomingContext(ctx, forwardedByKey)))
		}
		l.log.LogAttrs(ctx, level, text, attrs...)
	}
	return resp, err
}

func requestAttrs(ctx context.Context, method string, took time.Duration, req, resp any, err error) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("method", method),
		slog.Duration("took", took),
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
