package peer

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Node is the node that the service speaks for. Its methods may be called by
// several goroutines.
type Node interface {
	ClusterID() uint64
	MemberID() uint64
	// Position confirms that this node leads, and says where the cluster stands. It
	// fails with backend.ErrNotLeader if it does not lead.
	Position(ctx context.Context) (Position, error)
	// FollowFrom opens a stream on the leader's hub for the events from rev on; the
	// service creates the watcher and closes the stream. It fails with
	// backend.ErrNotLeader if this node does not lead.
	FollowFrom(rev int64) (*watch.Stream, error)
	// CompactRevision is the compact revision of the moment, -1 if there is none.
	CompactRevision() int64
	// AuthVersion is the version of users and roles of the moment.
	AuthVersion() int64
	// Leading is closed when the leadership of the moment ends; it is closed if
	// there is none.
	Leading() <-chan struct{}
}

// Position says where a leader stands.
type Position struct {
	Term            int64
	Member          uint64
	Revision        int64 // the frontier
	CompactRevision int64 // -1: nothing was compacted yet
	AuthVersion     int64 // of users and roles
}

func (p Position) header(cluster uint64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: cluster, MemberId: p.Member, Revision: p.Revision, RaftTerm: uint64(p.Term)}
}

func positionOf(r *pb.WatchResponse) Position {
	h := r.GetHeader()
	return Position{
		Term: int64(h.GetRaftTerm()), Member: h.GetMemberId(), Revision: h.GetRevision(), CompactRevision: r.GetCompactRevision(),
		AuthVersion: r.GetWatchId(),
	}
}

const (
	serviceName    = "sqlbrain.Peer"
	positionMethod = "/" + serviceName + "/Position"
	followMethod   = "/" + serviceName + "/Follow"
)

// desc is written by hand, as the messages are etcd's:
//
//	service Peer {
//	  // The header has the leader's term, member id and frontier; compact_revision is
//	  // set, watch_id is the version of users and roles, and nothing else is set.
//	  rpc Position(google.protobuf.Empty) returns (etcdserverpb.WatchResponse);
//	  // The request is a create_request with a start_revision. Of each response the
//	  // header's revision says up to which the receiver is complete with it, and
//	  // watch_id is the version of users and roles. Events
//	  // have no previous version but its mod_revision; a delete has its key and
//	  // mod_revision. A response with fragment set goes on in the next one. A
//	  // response with canceled set says that the start was compacted.
//	  rpc Follow(etcdserverpb.WatchRequest) returns (stream etcdserverpb.WatchResponse);
//	}
var desc = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*handlers)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Position", Handler: handlePosition}},
	Streams:     []grpc.StreamDesc{{StreamName: "Follow", Handler: handleFollow, ServerStreams: true}},
}

type handlers interface {
	position(ctx context.Context) (*pb.WatchResponse, error)
	follow(r *pb.WatchRequest, stream grpc.ServerStream) error
}

func handlePosition(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	in := new(emptypb.Empty)
	if err := decode(in); err != nil {
		return nil, err
	}
	call := func(ctx context.Context, _ any) (any, error) { return srv.(handlers).position(ctx) }
	if interceptor == nil {
		return call(ctx, in)
	}
	return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: positionMethod}, call)
}

func handleFollow(srv any, stream grpc.ServerStream) error {
	in := new(pb.WatchRequest)
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	return srv.(handlers).follow(in, stream)
}

const (
	// heartbeat is how often a feed says something, whatever happens. A follower
	// must hear several of them within Config.Silence.
	heartbeat = 200 * time.Millisecond
	// fragmentBytes is about how large a message of a feed gets: large enough for
	// throughput, small enough for heartbeats to get through between two.
	fragmentBytes = 1 << 20
)

// service is sqlbrain.Peer.
type service struct {
	node          Node
	heartbeat     time.Duration
	fragmentBytes int
}

// Register adds the service to a gRPC server, which must check calls with
// CheckUnary and CheckStream.
func Register(s grpc.ServiceRegistrar, n Node) {
	s.RegisterService(&desc, &service{node: n, heartbeat: heartbeat, fragmentBytes: fragmentBytes})
}

func (s *service) position(ctx context.Context) (*pb.WatchResponse, error) {
	p, err := s.node.Position(ctx)
	if err != nil {
		return nil, notLeader(err)
	}
	return &pb.WatchResponse{Header: p.header(s.node.ClusterID()), CompactRevision: p.CompactRevision, WatchId: p.AuthVersion}, nil
}

// notLeader turns backend.ErrNotLeader into the status that clients know, and
// leaves other errors to the server's front.
func notLeader(err error) error {
	if errors.Is(err, backend.ErrNotLeader) {
		return rpctypes.ErrGRPCNotLeader
	}
	return err
}
