package server

import (
	"context"
	"errors"
	"fmt"
	"math"
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

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/server/peer"
)

// Router knows who leads. Its method may be called by several goroutines.
type Router interface {
	// Leader returns a connection to the node that leads, one of a peer.Pool's;
	// self says that this node leads itself. It waits for a leader until ctx ends;
	// then its error wraps backend.ErrNotServing.
	Leader(ctx context.Context) (conn *grpc.ClientConn, self bool, err error)
}

const (
	// forwardedForKey and forwardedByKey are metadata of a forwarded call: the
	// client's address, and the member that forwards.
	forwardedForKey = peer.MetadataPrefix + "forwarded-for"
	forwardedByKey  = peer.MetadataPrefix + "forwarded-by"
	// notLeaderKey is in the trailer of a call that was not executed because its
	// receiver does not lead.
	notLeaderKey = peer.MetadataPrefix + "not-leader"
)

// Who leads may be news to some nodes: between two attempts there is a pause.
const (
	minForwardPause = 5 * time.Millisecond
	maxForwardPause = 200 * time.Millisecond
)

// maxApplyWait bounds how long an answer of the leader's waits for this node to apply
// it: longer than a follower takes whose feed broke and that reads the log.
const maxApplyWait = 3 * time.Second

// authService is what the methods of the Auth service begin with.
const authService = "/etcdserverpb.Auth/"

// methodMoveLeader is for the leader only, as in etcd.
const methodMoveLeader = "/etcdserverpb.Maintenance/MoveLeader"

// forwarder sends to the leader what this node cannot answer since it does not
// lead. A nil one forwards nothing.
//
// A call is sent again, wherever the leader is by then, as long as it certainly
// was not executed, or has no effect. Else the client is told that the leader
// changed, as etcd does: whether its write took effect is unknown.
//
// The answer to a write waits, for a bounded time, until this node has applied the
// write, because etcd's members answer in that order: a client that stays with one
// endpoint then finds its write in serializable reads, and not in a watch that starts
// now. If the time is over the client gets the answer all the same: the write is
// durable, and an error would say that it may not be.
type forwarder struct {
	router    Router
	node      forwarderNode
	guard     *auth.Guard
	timeout   time.Duration // bound on a call, besides its caller's deadline
	applyWait time.Duration // see maxApplyWait
	replies   replyTypes
	outcomes  *prometheus.CounterVec
	unapplied prometheus.Counter
}

// forwarderNode is what a forwarder needs of this node.
type forwarderNode interface {
	identity
	applier
}

func newForwarder(r Router, n forwarderNode, guard *auth.Guard, timeout time.Duration) *forwarder {
	return &forwarder{
		router: r, node: n, guard: guard, timeout: timeout, applyWait: maxApplyWait,
		unapplied: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sqlbrain_forwarded_unapplied_total",
			Help: "Forwarded writes that were answered before this node had applied them, since that took too long.",
		}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sqlbrain_forwarded_requests_total",
			Help: "Attempts to have the leader answer a request: answered, repeated since the request was not executed or only reads, or lost with an unknown outcome.",
		}, []string{"outcome"}),
	}
}

// unary executes a call here, or if this node does not lead, at the leader.
func (f *forwarder) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if f == nil || !errors.Is(err, backend.ErrNotLeader) || info.FullMethod == methodMoveLeader {
		return resp, err
	}
	m, ok := req.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("server: cannot forward a %T", req)
	}
	return f.call(ctx, info.FullMethod, m, handler)
}

// awaitApplied waits, for a bounded time, until this node has applied the write req,
// which the leader has answered with resp.
func (f *forwarder) awaitApplied(ctx context.Context, method string, req proto.Message, resp any) {
	wait := f.applyWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2) // the answer must reach the client in time
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := f.apply(ctx, method, req, resp); err != nil {
		f.unapplied.Inc()
	}
}

func (f *forwarder) apply(ctx context.Context, method string, req proto.Message, resp any) error {
	if strings.HasPrefix(method, authService) {
		_, err := f.guard.Refresh(ctx)
		return err
	}
	r, ok := resp.(interface{ GetHeader() *pb.ResponseHeader })
	if !ok || r.GetHeader() == nil {
		return nil
	}
	u := backend.Update{Revision: r.GetHeader().GetRevision()}
	if c, ok := req.(*pb.CompactionRequest); ok {
		u.CompactRevision = c.GetRevision()
	}
	return f.node.AwaitApplied(ctx, u)
}

// errForwardTimeout: the forwarder's own bound has ended a call.
var errForwardTimeout = fmt.Errorf("%w: no answer from a leader", backend.ErrTimeout)

// call has method executed by the leader, by handler if that is this node.
func (f *forwarder) call(caller context.Context, method string, req proto.Message, handler grpc.UnaryHandler) (any, error) {
	if steps := backend.StepsOf(caller); steps != nil {
		defer func(started time.Time) { steps.Forward += time.Since(started) }(time.Now())
	}
	ctx, cancel := context.WithTimeout(caller, f.timeout)
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
	who, version, err := f.guard.Forwarded(ctx)
	if err != nil {
		return nil, err
	}
	for pause := minForwardPause; ; pause = min(2*pause, maxForwardPause) {
		conn, self, err := f.router.Leader(ctx)
		if err != nil {
			return nil, ended(caller, ctx, err)
		}
		if self {
			resp, err := handler(executing, req)
			if !errors.Is(err, backend.ErrNotLeader) {
				return resp, ended(caller, ctx, err)
			}
		} else {
			resp, again, err := f.send(executing, conn, method, req, who)
			if !again && denied(err) {
				// Perhaps for what this node did not know when it found out who calls.
				again = f.lookAgain(ctx, &who, &version)
			}
			if !again {
				if err == nil && !onlyReads(req) {
					f.awaitApplied(caller, method, req, resp)
				}
				return resp, ended(caller, ctx, err)
			}
		}
		if err := waitFor(ctx, pause); err != nil {
			return nil, ended(caller, ctx, err)
		}
	}
}

// lookAgain finds out anew who calls, if users and roles have changed, and reports
// whether it did. A call that was denied was not executed.
func (f *forwarder) lookAgain(ctx context.Context, who *metadata.MD, version *int64) bool {
	newest, err := f.guard.Refresh(ctx)
	if err != nil || newest <= *version {
		return false
	}
	*who, *version, err = f.guard.Forwarded(ctx)
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

// ended returns what a call that ended with err is answered with. The bound in ctx
// is this node's own: a client that did not set it must not be told that its
// deadline is over. The leader, which was told of it, may notice first.
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
func (f *forwarder) send(ctx context.Context, conn *grpc.ClientConn, method string, req proto.Message, who metadata.MD) (resp any, again bool, err error) {
	reply, err := f.replies.of(method)
	if err != nil {
		return nil, false, err
	}
	reads := onlyReads(req)
	attempt := ctx
	if reads {
		// The node may be gone without a trace, and another one lead by now.
		var cancel context.CancelFunc
		attempt, cancel = context.WithTimeout(ctx, f.timeout/4)
		defer cancel()
	}
	var (
		trailer metadata.MD
		reached grpcpeer.Peer // set once a connection took the call
	)
	err = conn.Invoke(f.outgoing(attempt, who), method, req, reply,
		grpc.Trailer(&trailer), grpc.Peer(&reached), grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32))
	outcome := "answered"
	switch {
	case err == nil:
		if r, ok := reply.(interface{ GetHeader() *pb.ResponseHeader }); ok && r.GetHeader() != nil {
			r.GetHeader().MemberId = f.node.MemberID()
		}
	case ctx.Err() != nil:
		outcome, err = "lost", ctx.Err()
	case peer.Misdirected(trailer), len(trailer.Get(notLeaderKey)) > 0:
		outcome, again = "repeated", true // refused before it was looked at
	case reads && (late(err) || leaderChanged(err) || connectionFailed(err, trailer)):
		outcome, again = "repeated", true
	case late(err):
		outcome = "lost"
	case !connectionFailed(err, trailer):
		// The leader's own words; or gRPC's, which refuses what is too large for example.
	case reached.Addr == nil:
		outcome, again = "repeated", true // never sent
	default:
		outcome, err = "lost", rpctypes.ErrGRPCLeaderChanged
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
	if peer.Answered(trailer) {
		return false
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.Internal, codes.Canceled, codes.Unknown:
		return true
	}
	return false
}

// onlyReads reports whether executing req twice, or for nothing, does no harm.
func onlyReads(req proto.Message) bool {
	switch r := req.(type) {
	case *pb.RangeRequest, *pb.LeaseTimeToLiveRequest, *pb.LeaseLeasesRequest, *pb.LeaseKeepAliveRequest,
		*pb.StatusRequest, *pb.HashKVRequest, *pb.HashRequest, *pb.MemberListRequest,
		*pb.AuthStatusRequest, *pb.InternalAuthenticateRequest, *pb.AuthUserGetRequest, *pb.AuthUserListRequest,
		*pb.AuthRoleGetRequest, *pb.AuthRoleListRequest:
		return true
	case *pb.AlarmRequest:
		return r.Action == pb.AlarmRequest_GET
	case *pb.TxnRequest:
		readOnly, _ := txnReads(r)
		return readOnly
	}
	return false
}

// outgoing returns ctx with the caller's metadata for the leader, whatever belongs to
// the request and not to the connection it came on, and with who the caller is in
// place of what proves that.
func (f *forwarder) outgoing(ctx context.Context, who metadata.MD) context.Context {
	in, _ := metadata.FromIncomingContext(ctx)
	out := make(metadata.MD, len(in)+4)
	for key, values := range in {
		if !belongsToConnection(key) && !auth.Secret(key) {
			out[key] = values
		}
	}
	for key, values := range who {
		out[key] = values
	}
	if p, ok := grpcpeer.FromContext(ctx); ok {
		out.Set(forwardedForKey, p.Addr.String())
	}
	if id := requestIDOf(ctx, false); id != "" {
		out.Set(requestIDKey, id)
	}
	out.Set(forwardedByKey, fmt.Sprintf("%x", f.node.MemberID()))
	return metadata.NewOutgoingContext(ctx, out)
}

// belongsToConnection also says so of what only nodes may say to each other.
func belongsToConnection(key string) bool {
	switch key {
	case "content-type", "user-agent", "te", "host", "connection", "accept-encoding", "content-length":
		return true
	}
	return strings.HasPrefix(key, ":") || strings.HasPrefix(key, "grpc-") || strings.HasPrefix(key, peer.MetadataPrefix)
}

func waitFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
