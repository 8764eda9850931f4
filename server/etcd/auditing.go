package etcd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/audit"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/transport"
)

// auditor records clients' calls in the audit log. The member that a client calls does so,
// with the answer that the client gets; the leader, which may execute the call, does not.
// Calls that this process makes itself on behalf of a client's are left out for the same reason.
type auditor struct {
	log   *audit.Log // nil: off
	guard *guard.Guard
}

func (a *auditor) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	if a.log == nil || transport.FromInside(ctx) {
		return handler(ctx, req)
	}
	changes := isChange(req)
	who := &caller{}
	if changes {
		who = a.caller(ctx) // the change may be of the caller itself
	}
	resp, err := handler(ctx, req)
	login, isLogin := req.(*pb.AuthenticateRequest)
	switch {
	case isLogin && loginFailed(err):
		a.record(ctx, audit.LoginFailed, info.FullMethod, err, &caller{certificate: certificateOf(ctx)},
			func(e *audit.Event) { e.User = login.Name })
	case isDenial(err) && !emptyName(req):
		if !changes {
			who = a.caller(ctx)
		}
		a.record(ctx, audit.Denied, info.FullMethod, err, who, func(e *audit.Event) { e.Target = target(req) })
	case changes:
		a.record(ctx, audit.Change, info.FullMethod, err, who, func(e *audit.Event) { e.Target = target(req) })
	}
	return resp, err
}

func (a *auditor) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := link.WithRequestID(ss.Context())
	ss = sourcedStream{ss, ctx}
	if a.log == nil || transport.FromInside(ctx) {
		return handler(srv, ss)
	}
	var asked firstMessage
	if !info.IsClientStream {
		asked.ServerStream = ss
		ss = &asked
	}
	err := handler(srv, ss)
	kind, is := audit.Denied, isDenial(err)
	if info.FullMethod == pb.Maintenance_Snapshot_FullMethodName && !is {
		kind, is = audit.Snapshot, true
	}
	if is {
		a.record(ctx, kind, info.FullMethod, err, a.caller(ctx), func(e *audit.Event) { e.Target = target(asked.message) })
	}
	return err
}

// firstMessage keeps the one request of a stream of answers.
type firstMessage struct {
	grpc.ServerStream
	message any
}

func (f *firstMessage) RecvMsg(m any) error {
	err := f.ServerStream.RecvMsg(m)
	f.message = m
	return err
}

// deniedWatch records that a watch was refused. The stream stays open.
func (a *auditor) deniedWatch(ctx context.Context, key, end []byte, reason string) {
	_, text, _ := strings.Cut(reason, "desc = ") // gRPC's words come first
	a.denied(ctx, pb.Watch_Watch_FullMethodName, status.Error(codes.PermissionDenied, text),
		func() []slog.Attr { return keyRange(key, end) })
}

// denied records err if it is a denial, of what has no interceptor.
func (a *auditor) denied(ctx context.Context, method string, err error, target func() []slog.Attr) {
	if a.log != nil && isDenial(err) {
		a.record(ctx, audit.Denied, method, err, a.caller(ctx), func(e *audit.Event) { e.Target = target() })
	}
}

func (a *auditor) record(ctx context.Context, kind audit.Kind, method string, err error, who *caller,
	complete func(*audit.Event)) {
	a.log.Record(kind, who.source(ctx), err == nil, func() audit.Event {
		e := audit.Event{
			Method: method, User: who.user, Certificate: who.certificate, Remote: guard.Remote(ctx),
			RequestID: link.RequestID(ctx, false), Code: status.Code(err).String(),
		}
		if err != nil {
			e.Error = status.Convert(err).Message()
		}
		complete(&e)
		return e
	})
}

// caller is who makes a call; without a user and a certificate it is anonymous.
type caller struct{ user, certificate string }

func (c *caller) source(ctx context.Context) audit.Source {
	if name := cmp.Or(c.user, c.certificate); name != "" {
		return audit.Source{Name: name, Authenticated: true}
	}
	return audit.Source{Name: guard.SourceAddress(ctx)}
}

func (a *auditor) caller(ctx context.Context) *caller {
	return &caller{user: a.guard.User(withSource(ctx)), certificate: certificateOf(ctx)}
}

// certificateOf returns the common name of the client's certificate, "" without a verified one.
func certificateOf(ctx context.Context) string {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			return info.State.VerifiedChains[0][0].Subject.CommonName
		}
	}
	return ""
}

// isDenial reports whether err, of an answer, refuses the caller. A service that is a client of
// others answers with their texts and not with their codes.
func isDenial(err error) bool {
	if err == nil {
		return false
	}
	switch status.Convert(err).Message() {
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCPermissionDenied), rpctypes.ErrGRPCPermissionDenied.Error(),
		rpctypes.ErrorDesc(rpctypes.ErrGRPCInvalidAuthToken), rpctypes.ErrGRPCInvalidAuthToken.Error(),
		rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision), rpctypes.ErrGRPCAuthOldRevision.Error(),
		rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty), rpctypes.ErrGRPCUserEmpty.Error():
		return true
	}
	code := status.Code(err)
	return code == codes.PermissionDenied || code == codes.Unauthenticated
}

// emptyName reports whether the name that a request lacks is not the caller's.
func emptyName(req any) bool {
	r, ok := req.(*pb.AuthUserAddRequest)
	return ok && r.Name == ""
}

// loginFailed reports whether a login was refused for its name and password, or because too
// many failed.
func loginFailed(err error) bool {
	switch status.Code(err) {
	case codes.OK, codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Internal, codes.FailedPrecondition:
		return false
	}
	return true
}

// isChange reports whether a request is recorded even if it is permitted.
func isChange(req any) bool {
	switch r := req.(type) {
	case *pb.AuthEnableRequest, *pb.AuthDisableRequest,
		*pb.AuthUserAddRequest, *pb.AuthUserDeleteRequest, *pb.AuthUserChangePasswordRequest, *pb.AuthUserGrantRoleRequest,
		*pb.AuthUserRevokeRoleRequest,
		*pb.AuthRoleAddRequest, *pb.AuthRoleDeleteRequest, *pb.AuthRoleGrantPermissionRequest,
		*pb.AuthRoleRevokePermissionRequest,
		*pb.MemberAddRequest, *pb.MemberRemoveRequest, *pb.MemberUpdateRequest, *pb.MemberPromoteRequest,
		*pb.DefragmentRequest, *pb.MoveLeaderRequest, *pb.CompactionRequest:
		return true
	case *pb.AlarmRequest:
		return r.Action != pb.AlarmRequest_GET
	case *pb.DowngradeRequest:
		return r.Action != pb.DowngradeRequest_VALIDATE
	}
	return false
}

// target says what a request is about, without values and passwords.
func target(req any) []slog.Attr {
	switch r := req.(type) {
	case *pb.AuthUserAddRequest:
		return []slog.Attr{audit.Text("user", r.Name), slog.Bool("no_password", r.GetOptions().GetNoPassword())}
	case *pb.AuthUserGrantRoleRequest:
		return []slog.Attr{audit.Text("user", r.User), audit.Text("role", r.Role)}
	case *pb.AuthUserRevokeRoleRequest:
		return []slog.Attr{audit.Text("user", r.Name), audit.Text("role", r.Role)}
	case *pb.AuthUserDeleteRequest, *pb.AuthUserChangePasswordRequest, *pb.AuthUserGetRequest:
		return []slog.Attr{audit.Text("user", r.(interface{ GetName() string }).GetName())}
	case *pb.AuthRoleAddRequest:
		return []slog.Attr{audit.Text("role", r.Name)}
	case *pb.AuthRoleDeleteRequest, *pb.AuthRoleGetRequest:
		return []slog.Attr{audit.Text("role", r.(interface{ GetRole() string }).GetRole())}
	case *pb.AuthRoleGrantPermissionRequest:
		return append([]slog.Attr{audit.Text("role", r.Name), slog.String("permission", permissionType(r.Perm))},
			keyRange(r.GetPerm().GetKey(), r.GetPerm().GetRangeEnd())...)
	case *pb.AuthRoleRevokePermissionRequest:
		return append([]slog.Attr{audit.Text("role", r.Role)}, keyRange(r.Key, r.RangeEnd)...)
	case *pb.MemberAddRequest:
		return []slog.Attr{audit.List("peer_urls", r.PeerURLs), slog.Bool("learner", r.IsLearner)}
	case *pb.MemberRemoveRequest, *pb.MemberPromoteRequest:
		return []slog.Attr{memberAttr(r.(interface{ GetID() uint64 }).GetID())}
	case *pb.MemberUpdateRequest:
		return []slog.Attr{memberAttr(r.ID), audit.List("peer_urls", r.PeerURLs)}
	case *pb.MoveLeaderRequest:
		return []slog.Attr{memberAttr(r.TargetID)}
	case *pb.AlarmRequest:
		return []slog.Attr{slog.String("action", r.Action.String()), slog.String("alarm", r.Alarm.String()),
			memberAttr(r.MemberID)}
	case *pb.DowngradeRequest:
		return []slog.Attr{slog.String("action", r.Action.String()), audit.Text("version", r.Version)}
	case *pb.CompactionRequest:
		return []slog.Attr{slog.Int64("revision", r.Revision), slog.Bool("physical", r.Physical)}
	case *pb.RangeRequest:
		return keyRange(r.Key, r.RangeEnd)
	case *pb.PutRequest:
		if r.Lease != 0 {
			return append(keyRange(r.Key, nil), leaseAttr(r.Lease))
		}
		return keyRange(r.Key, nil)
	case *pb.DeleteRangeRequest:
		return keyRange(r.Key, r.RangeEnd)
	case *pb.TxnRequest:
		return []slog.Attr{audit.List("keys", txnKeys(r, nil))}
	case interface{ GetName() []byte }: // of the Lock and Election services
		return []slog.Attr{audit.Text("name", r.GetName())}
	case *pb.LeaseRevokeRequest, *pb.LeaseTimeToLiveRequest:
		return []slog.Attr{leaseAttr(r.(interface{ GetID() int64 }).GetID())}
	}
	return nil
}

func memberAttr(id uint64) slog.Attr { return slog.String("member", fmt.Sprintf("%x", id)) }
func leaseAttr(id int64) slog.Attr   { return slog.String("lease", fmt.Sprintf("%x", id)) }

func permissionType(p *authpb.Permission) string {
	if p == nil {
		return ""
	}
	return p.PermType.String()
}

func keyRange(key, end []byte) []slog.Attr {
	if len(end) == 0 {
		return []slog.Attr{audit.Text("key", key)}
	}
	return []slog.Attr{audit.Text("key", key), audit.Text("range_end", end)}
}

// txnKeys appends the first keys that a transaction is about; which of them its caller may not
// use is not known.
func txnKeys(r *pb.TxnRequest, keys [][]byte) [][]byte {
	for _, c := range r.GetCompare() {
		keys = append(keys, c.Key)
	}
	for _, op := range slices.Concat(r.GetSuccess(), r.GetFailure()) {
		switch op := op.GetRequest().(type) {
		case *pb.RequestOp_RequestRange:
			keys = append(keys, op.RequestRange.GetKey())
		case *pb.RequestOp_RequestPut:
			keys = append(keys, op.RequestPut.GetKey())
		case *pb.RequestOp_RequestDeleteRange:
			keys = append(keys, op.RequestDeleteRange.GetKey())
		case *pb.RequestOp_RequestTxn:
			keys = txnKeys(op.RequestTxn, keys)
		}
	}
	return keys
}
