package etcd

import (
	"context"
	"errors"
	"log/slog"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/forward"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/status"
	"github.com/sqlbrain/sqlbrain/server/transport"
)

// front is what every call passes before and after its handler: the metadata
// that clients send with it, and the mapping of errors. It is the innermost
// interceptor, so that logs and metrics see what the client gets.
type front struct {
	node     Node
	browser  Browser
	streams  *transport.Streams
	log      *slog.Logger
	requests *status.ClientRequests
	guard    *guard.Guard
	forward  *forward.Forwarder // nil: this node always leads
}

func (f *front) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	if _, err := f.metadata(ctx, "unary"); err != nil {
		return nil, err
	}
	called := withSource(ctx)
	if err := f.hashPasswords(called, req); err != nil {
		return nil, Answer(ctx, f.log, info.FullMethod, err)
	}
	resp, err := f.forward.Unary(called, req, info, handler)
	if err == nil && len(metadata.ValueFromIncomingContext(ctx, CommitTimeKey)) > 0 {
		err = f.sendCommitTime(ctx, req, resp)
	}
	return resp, Answer(ctx, f.log, info.FullMethod, err)
}

// CommitTimeKey is metadata by which a client asks when the revision of the answer was committed: with any value in the
// request, it is in the header of the answer as a time in RFC 3339. The revision is that of the answer's header, or the
// one that a range asks for. Streams have none, nor has a revision whose commit is not known: it is compacted or
// changed nothing.
const CommitTimeKey = "sqlbrain-commit-time"

// sendCommitTime adds the time to the header of an answer. The request was executed; so an answer whose time cannot be
// read is sent without one. Errors: the connection's.
func (f *front) sendCommitTime(ctx context.Context, req, resp any) error {
	var revision int64
	if r, ok := resp.(interface{ GetHeader() *pb.ResponseHeader }); ok {
		revision = r.GetHeader().GetRevision()
	}
	if r, ok := req.(*pb.RangeRequest); ok && r.Revision > 0 {
		revision = r.Revision
	}
	commit, err := f.browser.CommitOf(ctx, auth.PreAuthorized, revision)
	if err != nil {
		f.log.Debug("cannot read when a revision was committed, the answer lacks it", "revision", revision, "error", err)
		return nil
	}
	if !commit.Has(revision) {
		return nil
	}
	return grpc.SetHeader(ctx, metadata.Pairs(CommitTimeKey, history.FormatTime(commit.At)))
}

func (f *front) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	needsLeader, err := f.metadata(ss.Context(), "stream")
	if err != nil {
		return err
	}
	ss = sourcedStream{ss, withSource(ss.Context())}
	err = f.streams.Run(ss, info.FullMethod, needsLeader, func(ss grpc.ServerStream) error { return handler(srv, ss) })
	return Answer(ss.Context(), f.log, info.FullMethod, err)
}

// withSource returns ctx, of a call that came to the servers for clients, with whose
// connection it came on: only this process itself may say for whom it calls.
func withSource(ctx context.Context) context.Context {
	if transport.FromInside(ctx) {
		return guard.From(ctx, guard.Inside)
	}
	return guard.From(ctx, guard.Client)
}

// sourcedStream is a stream with another context.
type sourcedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s sourcedStream) Context() context.Context { return s.ctx }

// metadata counts the call by its client's version, and refuses it if it asks
// for a leader and there is none.
func (f *front) metadata(ctx context.Context, kind string) (needsLeader bool, err error) {
	// One value each: all of the metadata would be a copy of it.
	version := "unknown"
	if vs := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataClientAPIVersionKey); len(vs) > 0 {
		version = vs[0]
	}
	if !utf8.ValidString(version) {
		return false, rpctypes.ErrGRPCInvalidClientAPIVersion
	}
	f.requests.Count(kind, version)
	if vs := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey); len(vs) > 0 &&
		vs[0] == rpctypes.MetadataHasLeader {
		if f.node.Status().NotServing != nil {
			return true, rpctypes.ErrGRPCNoLeader
		}
		needsLeader = true
	}
	return needsLeader, nil
}

// UnaryForMembers is the interceptor of calls from other members. It says unmistakably when
// a call was not executed because this node does not lead; only then may the member try
// elsewhere. Nothing is forwarded from here: two nodes that take each other for the leader
// would never end.
func (s *Services) UnaryForMembers(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(guard.From(ctx, guard.Peer), req)
	if errors.Is(err, mvcc.ErrNotLeader) {
		if err := forward.MarkNotLeader(ctx); err != nil {
			return nil, err
		}
	}
	return resp, Answer(ctx, s.log, info.FullMethod, err)
}

// StreamForMembers is the interceptor of streams from other members.
func (s *Services) StreamForMembers(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	ss = sourcedStream{ss, guard.From(ss.Context(), guard.Peer)}
	err := s.streams.Run(ss, info.FullMethod, false, func(ss grpc.ServerStream) error { return handler(srv, ss) })
	return Answer(ss.Context(), s.log, info.FullMethod, err)
}
