package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// Router knows who leads. Its method may be called by several goroutines.
type Router interface {
	// Leader returns a connection to the node that leads, one of a link.Pool's;
	// self says that this node leads itself. It waits for a leader until ctx ends;
	// then its error wraps mvcc.ErrNotServing.
	Leader(ctx context.Context) (conn *grpc.ClientConn, self bool, err error)
}

const (
	// forKey and byKey are metadata of a forwarded call: the client's address, and the
	// member that forwards.
	forKey = link.MetadataPrefix + "forwarded-for"
	byKey  = link.MetadataPrefix + "forwarded-by"
	// notLeaderKey is in the trailer of a call that was not executed because its
	// receiver does not lead.
	notLeaderKey = link.MetadataPrefix + "not-leader"
)

// forwarding spaces out attempts to reach a leader: a new one may not be known to all nodes yet.
var forwarding = retry.Backoff{Min: 5 * time.Millisecond, Max: 200 * time.Millisecond}

// authService is what the methods of the Auth service begin with.
const authService = "/etcdserverpb.Auth/"

// methodMoveLeader is for the leader only, as in etcd.
const methodMoveLeader = "/etcdserverpb.Maintenance/MoveLeader"

// Node is this member.
type Node interface {
	MemberID() uint64
	// Revision returns the newest revision that can be read on this member.
	Revision() int64
	// AwaitApplied waits until this member has applied u, or ctx ends.
	AwaitApplied(ctx context.Context, u replica.Update) error
}

// Config configures a Forwarder.
type Config struct {
	Router  Router
	Node    Node
	Guard   *guard.Guard
	Timeout time.Duration // bound of a call, in addition to the caller's deadline

	// Tests change this.
	ReadAttempt time.Duration // bound of one attempt at a read; 0: a quarter of Timeout
}

// Forwarder sends calls to the leader that this member cannot execute because it does not
// lead. A nil Forwarder forwards nothing. Its methods may be called by several goroutines.
//
// A call is sent again, to the current leader, as long as it was certainly not executed or
// has no effect. Otherwise the client receives "leader changed", as from etcd: whether its
// write took effect is unknown.
//
// The response to a write waits, for a bounded time, until this member has applied the
// write, because etcd's members answer in that order. A client that stays with one
// endpoint then finds its write in serializable reads, and not in a watch that starts
// afterwards. After that time the client gets the response all the same: the write is
// durable, and an error would suggest that it may not be.
type Forwarder struct {
	cfg       Config
	replies   replyTypes
	outcomes  *prometheus.CounterVec
	unapplied prometheus.Counter
}

// New returns a Forwarder.
func New(cfg Config) *Forwarder {
	if cfg.ReadAttempt == 0 {
		cfg.ReadAttempt = cfg.Timeout / 4
	}
	f := &Forwarder{
		cfg: cfg,
		unapplied: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sqlbrain_forwarded_unapplied_total",
			Help: "Forwarded writes that were answered before this node had applied them, since that took too long.",
		}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sqlbrain_forwarded_requests_total",
			Help: "Attempts to have the leader answer a request: answered, repeated since the request was not executed or " +
				"only reads, or lost with an unknown outcome.",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{outcomeAnswered, outcomeRepeated, outcomeLost} {
		f.outcomes.WithLabelValues(outcome) // exists before the first one, which an alert would not see otherwise
	}
	return f
}

// The outcomes of an attempt, as labels.
const (
	outcomeAnswered = "answered"
	outcomeRepeated = "repeated"
	outcomeLost     = "lost"
)

// Collectors returns the metrics.
func (f *Forwarder) Collectors() []prometheus.Collector {
	return []prometheus.Collector{f.outcomes, f.unapplied}
}

// Unary executes a call with handler, or at the leader if this member does not lead. It is
// a gRPC interceptor.
func (f *Forwarder) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if f == nil || !errors.Is(err, mvcc.ErrNotLeader) || info.FullMethod == methodMoveLeader {
		return resp, err
	}
	m, ok := req.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("forward: cannot forward a %T", req)
	}
	return f.call(ctx, info.FullMethod, m, handler)
}

// awaitApplied waits, for a bounded time, until this node has applied the write req,
// which the leader has answered with resp.
func (f *Forwarder) awaitApplied(ctx context.Context, method string, req proto.Message, resp any) {
	wait := timing.ApplyWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2) // the answer must reach the client in time
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := f.apply(ctx, method, req, resp); err != nil {
		f.unapplied.Inc()
	}
}

func (f *Forwarder) apply(ctx context.Context, method string, req proto.Message, resp any) error {
	if strings.HasPrefix(method, authService) {
		_, err := f.cfg.Guard.Refresh(ctx)
		return err
	}
	r, ok := resp.(interface{ GetHeader() *pb.ResponseHeader })
	if !ok || r.GetHeader() == nil {
		return nil
	}
	u := replica.Update{Revision: r.GetHeader().GetRevision()}
	if c, ok := req.(*pb.CompactionRequest); ok {
		u.CompactRevision = c.GetRevision()
	}
	return f.cfg.Node.AwaitApplied(ctx, u)
}

// errForwardTimeout: the forwarder's own bound has ended a call.
var errForwardTimeout = fmt.Errorf("%w: no answer from a leader", mvcc.ErrTimeout)

// call has method executed by the leader, by handler if that is this node.
func (f *Forwarder) call(caller context.Context, method string, req proto.Message,
	handler grpc.UnaryHandler) (any, error) {
	if steps := mvcc.StepsOf(caller); steps != nil {
		defer func(started time.Time) { steps.Forward += time.Since(started) }(time.Now())
	}
	ctx, cancel := context.WithTimeout(caller, f.cfg.Timeout)
	defer cancel()
	executing := ctx
	switch r := req.(type) {
	case *pb.CompactionRequest:
		if r.Physical {
			executing = caller // removing history takes as long as it takes
		}
	case *pb.LeaseRevokeRequest:
		executing = caller // so does removing a lease of very many keys
	}
	who, version, err := f.cfg.Guard.Forwarded(ctx)
	if err != nil {
		return nil, err
	}
	for failures := 1; ; failures++ {
		conn, self, err := f.cfg.Router.Leader(ctx)
		if err != nil {
			return nil, ended(caller, ctx, err)
		}
		if self {
			resp, err := handler(executing, req)
			if !errors.Is(err, mvcc.ErrNotLeader) {
				return resp, ended(caller, ctx, err)
			}
		} else {
			resp, again, err := f.send(executing, conn, method, req, who)
			if !again && denied(err) {
				// Perhaps for what this node did not know when it found out who calls.
				again = f.lookAgain(ctx, &who, &version)
			}
			if !again {
				if err == nil && !OnlyReads(req) {
					f.awaitApplied(caller, method, req, resp)
				}
				return resp, ended(caller, ctx, err)
			}
		}
		if err := forwarding.Wait(ctx, failures); err != nil {
			return nil, ended(caller, ctx, err)
		}
	}
}

// lookAgain finds out anew who calls, if users and roles have changed, and reports
// whether it did. A call that was denied was not executed.
func (f *Forwarder) lookAgain(ctx context.Context, who *metadata.MD, version *int64) bool {
	newest, err := f.cfg.Guard.Refresh(ctx)
	if err != nil || newest <= *version {
		return false
	}
	*who, *version, err = f.cfg.Guard.Forwarded(ctx)
	return err == nil
}

// denied reports whether err, of the leader's, is about who calls.
func denied(err error) bool {
	for _, denial := range []error{
		rpctypes.ErrGRPCUserEmpty, rpctypes.ErrGRPCUserNotFound, rpctypes.ErrGRPCPermissionDenied,
		rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCInvalidAuthToken,
	} {
		if err != nil && status.Convert(err).Message() == status.Convert(denial).Message() {
			return true
		}
	}
	return false
}

// ended returns the answer to a call that ended with err. ctx has a deadline of this
// node: a client that did not set it must not get the error of an exceeded deadline.
// The leader received that deadline and may notice its end first.
func ended(caller, ctx context.Context, err error) error {
	if !late(err) {
		return err
	}
	bound, _ := ctx.Deadline()
	if theirs, ok := caller.Deadline(); ok && !theirs.After(bound) {
		return err
	}
	return errForwardTimeout
}

// send makes one attempt at the node that conn leads to. again says that the call
// may be made once more.
func (f *Forwarder) send(ctx context.Context, conn *grpc.ClientConn, method string, req proto.Message,
	who metadata.MD) (resp any, again bool, err error) {
	reply, err := f.replies.of(method)
	if err != nil {
		return nil, false, err
	}
	reads := OnlyReads(req)
	attempt := ctx
	if reads {
		// The node may be gone without a trace, and another one lead by now.
		var cancel context.CancelFunc
		attempt, cancel = context.WithTimeout(ctx, f.cfg.ReadAttempt)
		defer cancel()
	}
	var (
		trailer metadata.MD
		reached grpcpeer.Peer // set once a connection took the call
	)
	err = conn.Invoke(f.outgoing(attempt, who), method, req, reply,
		grpc.Trailer(&trailer), grpc.Peer(&reached), grpc.MaxCallRecvMsgSize(math.MaxInt32),
		grpc.MaxCallSendMsgSize(math.MaxInt32))
	outcome := outcomeAnswered
	switch {
	case err == nil:
		if r, ok := reply.(interface{ GetHeader() *pb.ResponseHeader }); ok && r.GetHeader() != nil {
			h := r.GetHeader()
			h.MemberId = f.cfg.Node.MemberID()
			if reads { // the client may read here at the revision that it gets
				h.Revision = min(h.Revision, f.cfg.Node.Revision())
			}
		}
	case ctx.Err() != nil:
		outcome, err = outcomeLost, ctx.Err()
	case link.Misdirected(trailer), len(trailer.Get(notLeaderKey)) > 0:
		outcome, again = outcomeRepeated, true // refused before it was looked at
	case reads && (late(err) || leaderChanged(err) || connectionFailed(err, trailer)):
		outcome, again = outcomeRepeated, true
	case late(err):
		outcome = outcomeLost
	case !connectionFailed(err, trailer):
		// The leader's own words; or gRPC's, which refuses what is too large for example.
	case reached.Addr == nil:
		outcome, again = outcomeRepeated, true // never sent
	default:
		outcome, err = outcomeLost, rpctypes.ErrGRPCLeaderChanged
	}
	f.outcomes.WithLabelValues(outcome).Inc()
	return reply, again, err
}

// late reports whether a deadline ended a call: this side may notice that first, or
// the other.
func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

func leaderChanged(err error) bool {
	return status.Convert(err).Message() == rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaderChanged)
}

// connectionFailed reports whether a call that was not cancelled got no answer: no
// node has given err, and it is one that a connection that fails makes up.
func connectionFailed(err error, trailer metadata.MD) bool {
	if link.Answered(trailer) {
		return false
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.Internal, codes.Canceled, codes.Unknown:
		return true
	}
	return false
}

// OnlyReads reports whether req has no effect, so that it may be executed twice.
func OnlyReads(req proto.Message) bool {
	switch r := req.(type) {
	case *pb.RangeRequest, *pb.LeaseTimeToLiveRequest, *pb.LeaseLeasesRequest, *pb.LeaseKeepAliveRequest,
		*pb.StatusRequest, *pb.HashKVRequest, *pb.HashRequest, *pb.MemberListRequest,
		*pb.AuthStatusRequest, *pb.InternalAuthenticateRequest, *pb.AuthUserGetRequest, *pb.AuthUserListRequest,
		*pb.AuthRoleGetRequest, *pb.AuthRoleListRequest:
		return true
	case *pb.AlarmRequest:
		return r.Action == pb.AlarmRequest_GET
	case *pb.TxnRequest:
		return !slices.ContainsFunc(slices.Concat(r.Success, r.Failure),
			func(op *pb.RequestOp) bool { return op.GetRequestRange() == nil })
	}
	return false
}

// outgoing returns ctx with the caller's metadata for the leader, whatever belongs to
// the request and not to the connection it came on, and with who the caller is in
// place of what proves that.
func (f *Forwarder) outgoing(ctx context.Context, who metadata.MD) context.Context {
	in, _ := metadata.FromIncomingContext(ctx)
	out := make(metadata.MD, len(in)+4)
	for key, values := range in {
		if !belongsToConnection(key) && !guard.Secret(key) && sendable(key, values) {
			out[key] = values
		}
	}
	maps.Copy(out, who)
	if p, ok := grpcpeer.FromContext(ctx); ok {
		out.Set(forKey, p.Addr.String())
	}
	if id := link.RequestID(ctx, false); id != "" {
		out.Set(link.RequestIDKey, id)
	}
	out.Set(byKey, fmt.Sprintf("%x", f.cfg.Node.MemberID()))
	return metadata.NewOutgoingContext(ctx, out)
}

// LogAttrs describes a forwarded call in logs: the address of the client, and the member
// that forwards.
func LogAttrs(ctx context.Context) []slog.Attr {
	return []slog.Attr{
		slog.Any("forwarded_for", metadata.ValueFromIncomingContext(ctx, forKey)),
		slog.Any("forwarded_by", metadata.ValueFromIncomingContext(ctx, byKey)),
	}
}

// MarkNotLeader marks the response to a forwarded call: it was not executed, because this
// member does not lead. Only then may the caller send it to another member.
func MarkNotLeader(ctx context.Context) error {
	return grpc.SetTrailer(ctx, metadata.Pairs(notLeaderKey, "true"))
}

// sendable reports whether gRPC sends this metadata. It receives more than that, and would fail a call with the rest
// of it before anything is sent.
func sendable(key string, values []string) bool {
	if strings.ContainsFunc(key, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	}) {
		return false
	}
	return strings.HasSuffix(key, "-bin") || !slices.ContainsFunc(values, func(v string) bool {
		return strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' })
	})
}

// belongsToConnection also says so of what only nodes may say to each other.
func belongsToConnection(key string) bool {
	switch key {
	case "content-type", "user-agent", "te", "host", "connection", "accept-encoding", "content-length":
		return true
	}
	return strings.HasPrefix(key, ":") || strings.HasPrefix(key, "grpc-") || strings.HasPrefix(key, link.MetadataPrefix)
}
