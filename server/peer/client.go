package peer

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Client asks one member. It belongs to a Pool, which closes it; its methods may
// be called by several goroutines.
type Client struct {
	urls    []string
	conn    *grpc.ClientConn
	dialer  *dialer
	silence time.Duration
}

// Conn is the member's connection, for other services of its peer port. Calls fail
// at once while it cannot be made.
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// Probe connects to each of the member's URLs once, apart from the connection that
// calls use. A URL that leads elsewhere is logged.
func (c *Client) Probe(ctx context.Context) error { return c.dialer.probe(ctx) }

// URLs are where the member listens. Nobody may change them.
func (c *Client) URLs() []string { return c.urls }

// Position asks where the cluster stands. The member confirms that it leads before
// it answers; the errors are those of errors.go, ctx's and the connection's.
func (c *Client) Position(ctx context.Context) (Position, error) {
	var (
		out     pb.WatchResponse
		trailer metadata.MD
		reached grpcpeer.Peer // set once a connection took the call
	)
	err := c.conn.Invoke(ctx, positionMethod, &emptypb.Empty{}, &out, grpc.Trailer(&trailer), grpc.Peer(&reached))
	if err != nil {
		return Position{}, c.verdict(ctx, err, trailer, reached.Addr != nil)
	}
	return positionOf(&out), nil
}

// verdict returns what err, which a call ended with, means. reached says that a
// connection took the call.
func (c *Client) verdict(ctx context.Context, err error, trailer metadata.MD, reached bool) error {
	var meaning error
	switch {
	case ctx.Err() != nil:
		meaning = context.Cause(ctx)
	case Misdirected(trailer):
		meaning = ErrOtherNode
	case is(err, rpctypes.ErrGRPCNotLeader):
		meaning = ErrNotLeader
	case is(err, rpctypes.ErrGRPCFutureRev):
		meaning = ErrAhead
	case status.Code(err) == codes.Unavailable && !reached:
		meaning = c.dialer.failure()
	}
	if meaning == nil {
		return fmt.Errorf("peer %s: %w", c, err)
	}
	return fmt.Errorf("peer %s: %w", c, meaning)
}

// is reports whether err is the same status as want.
func is(err, want error) bool {
	s := status.Convert(err)
	return s.Code() == status.Code(want) && s.Message() == status.Convert(want).Message()
}

func (c *Client) String() string { return strings.Join(c.urls, ",") }
