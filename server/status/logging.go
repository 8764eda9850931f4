package status

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

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

// requestText describes a request on keys without the values in it, as etcd does, in about textBytes. Other
// requests are not described: those of the Auth service hold passwords.
func requestText(req any) string {
	m, ok := req.(proto.Message)
	if !ok {
		return ""
	}
	e := excerpt{left: textBytes}
	text := ""
	switch req.(type) {
	case *pb.RangeRequest, *pb.DeleteRangeRequest, *pb.CompactionRequest:
		text = e.of(m).(fmt.Stringer).String()
	case *pb.PutRequest:
		text = pb.NewLoggablePutRequest(e.of(m).(*pb.PutRequest)).(fmt.Stringer).String()
	case *pb.TxnRequest:
		text = pb.NewLoggableTxnRequest(e.of(m).(*pb.TxnRequest)).String()
	}
	if e.cut || len(text) > textBytes {
		text = fmt.Sprintf("%s…(%d bytes)", strings.ToValidUTF8(text[:min(len(text), textBytes)], ""), proto.Size(m))
	}
	return text
}

const (
	textBytes = 4 << 10
	textDepth = 8 // in messages: a nested transaction is two
)

// excerpt copies as much of a request as is logged: etcd's stringer copies all of it several times for each level.
type excerpt struct {
	left int // bytes
	cut  bool
}

func (e *excerpt) of(m proto.Message) proto.Message {
	return e.message(m.ProtoReflect(), textDepth).Interface()
}

func (e *excerpt) message(m protoreflect.Message, depth int) protoreflect.Message {
	to := m.New()
	if e.take(16) < 16 || depth == 0 {
		e.cut = true
		return to
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case !m.Has(f):
		case f.IsList():
			list, into := m.Get(f).List(), to.Mutable(f).List()
			for i := 0; i < list.Len() && !e.cut; i++ {
				into.Append(protoreflect.ValueOfMessage(e.message(list.Get(i).Message(), depth-1)))
			}
		case f.Message() != nil:
			to.Set(f, protoreflect.ValueOfMessage(e.message(m.Get(f).Message(), depth-1)))
		case f.Kind() == protoreflect.BytesKind && f.Name() != "value": // only the size of a value is shown
			b := m.Get(f).Bytes()
			to.Set(f, protoreflect.ValueOfBytes(b[:e.take(len(b))]))
		default:
			to.Set(f, m.Get(f))
		}
	}
	return to
}

// take returns how many of n bytes are shown.
func (e *excerpt) take(n int) int {
	taken := min(n, e.left)
	e.left -= taken
	e.cut = e.cut || taken < n
	return taken
}
