package feed

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/cluster/feed/feedpb"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Node is the member that runs the service. Its methods may be called by several
// goroutines.
type Node interface {
	ClusterID() uint64
	MemberID() uint64
	// Position confirms that this member leads, and returns where the cluster stands.
	// It fails with mvcc.ErrNotLeader if the member does not lead.
	Position(ctx context.Context) (replica.Update, error)
	// Stream opens a stream on the leader's hub, which the caller closes. It fails with
	// mvcc.ErrNotLeader if this member does not lead.
	Stream() (*watch.Stream, error)
	// CompactRevision is the current compact revision, -1 if there is none.
	CompactRevision() int64
	// AuthVersion is the current version of users and roles.
	AuthVersion() int64
	// KeepsLock reports whether this member just saw in the database that it has the lock.
	KeepsLock() bool
	// RecordLoss writes down that the database lost data, for another member.
	RecordLoss(ctx context.Context, lost coder.DataLoss) error
	// HeartbeatPeriod returns a context that ends when the next heartbeat of feeds is due.
	HeartbeatPeriod() context.Context
	// FeedEnded is called when a feed that had begun has ended.
	FeedEnded()
	// LeadershipEnded returns a channel that is closed when the current leadership ends. It is
	// closed already if this member does not lead.
	LeadershipEnded() <-chan struct{}
}

const (
	// fragmentBytes is the approximate limit of a message: large enough for throughput,
	// small enough for heartbeats to pass between two messages.
	fragmentBytes = 1 << 20
)

// service implements sqlbrain.Peer.
type service struct {
	node          Node
	protocol      int
	figures       Figures
	fragmentBytes int
}

// Figures returns what this process measures. It may be called by several goroutines.
type Figures func() (map[string]float64, error)

// Register adds the service to a gRPC server, which must check calls with
// link.CheckUnary and link.CheckStream.
func Register(s grpc.ServiceRegistrar, n Node, figures Figures) {
	feedpb.RegisterPeerServer(s, &service{
		node: n, protocol: member.Protocol, figures: figures, fragmentBytes: fragmentBytes,
	})
}

// Position implements feedpb.PeerServer.
func (s *service) Position(ctx context.Context, _ *feedpb.PositionRequest) (*feedpb.Update, error) {
	p, err := s.node.Position(ctx)
	if err != nil {
		return nil, notLeader(err)
	}
	return s.message(p), nil
}

// Figures implements feedpb.PeerServer.
func (s *service) Figures(context.Context, *feedpb.FiguresRequest) (*feedpb.FiguresResponse, error) {
	values, err := s.figures()
	if err != nil {
		return nil, err
	}
	return &feedpb.FiguresResponse{Values: values}, nil
}

// RecordLoss implements feedpb.PeerServer.
func (s *service) RecordLoss(ctx context.Context, r *feedpb.RecordLossRequest) (*feedpb.RecordLossResponse, error) {
	err := s.node.RecordLoss(ctx, coder.DataLoss{Sequence: r.Sequence, Term: r.Term, Revision: r.Revision,
		Member: r.Member})
	return &feedpb.RecordLossResponse{}, err
}

// message returns u, without events, as it is sent.
func (s *service) message(u replica.Update) *feedpb.Update {
	return &feedpb.Update{
		Position: &feedpb.Position{ClusterId: s.node.ClusterID(), MemberId: s.node.MemberID(), Revision: u.Revision,
			Term: uint64(u.Term)},
		CompactRevision: u.CompactRevision, AuthVersion: u.AuthVersion,
	}
}

// notLeader translates mvcc.ErrNotLeader to the status that clients know. The server
// translates other errors.
func notLeader(err error) error {
	if errors.Is(err, mvcc.ErrNotLeader) {
		return rpctypes.ErrGRPCNotLeader
	}
	return err
}
