package feed

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/cluster/feed/feedpb"
	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// Client calls the service of one member. Its methods may be called by several
// goroutines.
type Client struct {
	member   *link.Client
	protocol int
	silence  time.Duration
}

// NewClient returns the client of a member's service.
func NewClient(to *link.Client) *Client {
	return &Client{member: to, protocol: member.Protocol, silence: timing.FeedSilence}
}

// Position returns where the cluster stands. The member confirms that it leads before
// it answers. The errors are ErrNotLeader, those of package link, ctx's and the
// connection's.
func (c *Client) Position(ctx context.Context) (replica.Update, error) {
	var (
		trailer metadata.MD
		reached peer.Peer // set once a connection took the call
	)
	u, err := feedpb.NewPeerClient(c.member.Conn()).Position(ctx, &feedpb.PositionRequest{}, grpc.Trailer(&trailer),
		grpc.Peer(&reached))
	if err != nil {
		return replica.Update{}, c.failure(ctx, err, trailer, reached.Addr != nil)
	}
	return updateOf(u), nil
}

// Figures returns what the member's process measures. The errors are those of Position.
func (c *Client) Figures(ctx context.Context) (map[string]float64, error) {
	var (
		trailer metadata.MD
		reached peer.Peer
	)
	got, err := feedpb.NewPeerClient(c.member.Conn()).Figures(ctx, &feedpb.FiguresRequest{}, grpc.Trailer(&trailer),
		grpc.Peer(&reached))
	if err != nil {
		return nil, c.failure(ctx, err, trailer, reached.Addr != nil)
	}
	return got.Values, nil
}

// RecordLoss makes the member write down that the database lost data. The errors are those of
// Position, and the member's.
func (c *Client) RecordLoss(ctx context.Context, lost coder.DataLoss) error {
	var (
		trailer metadata.MD
		reached peer.Peer
	)
	_, err := feedpb.NewPeerClient(c.member.Conn()).RecordLoss(ctx, &feedpb.RecordLossRequest{
		Sequence: lost.Sequence, Term: lost.Term, Revision: lost.Revision, Member: lost.Member,
	}, grpc.Trailer(&trailer), grpc.Peer(&reached))
	if err != nil {
		return c.failure(ctx, err, trailer, reached.Addr != nil)
	}
	return nil
}

// failure returns what err, the error of a call, means; see link.Client.Failure.
func (c *Client) failure(ctx context.Context, err error, trailer metadata.MD, reached bool) error {
	switch {
	case is(err, rpctypes.ErrGRPCNotLeader):
		err = ErrNotLeader
	case is(err, rpctypes.ErrGRPCFutureRev):
		err = ErrAhead
	}
	return c.member.Failure(ctx, err, trailer, reached)
}

// is reports whether err is the same status as want.
func is(err, want error) bool {
	s := status.Convert(err)
	return s.Code() == status.Code(want) && s.Message() == status.Convert(want).Message()
}
