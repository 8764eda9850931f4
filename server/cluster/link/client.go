package link

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Client is the connection to one member. It belongs to a Pool, which closes it; its
// methods may be called by several goroutines.
type Client struct {
	urls   []string
	conn   *grpc.ClientConn
	dialer *dialer
}

// Conn is the connection for the services of the member's peer port. Calls fail at
// once while it cannot be made.
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// Probe connects to each of the member's URLs once, apart from the connection that
// calls use. A URL that leads to another process is logged.
func (c *Client) Probe(ctx context.Context) error { return c.dialer.probe(ctx) }

// Unreachable reports whether the last attempt to connect failed at every address. While calls use the client, attempts
// follow each other.
func (c *Client) Unreachable() bool { return c.dialer.unreachable() }

// URLs are where the member listens. The caller must not change them.
func (c *Client) URLs() []string { return c.urls }

// Failure returns what err, the error of a call on Conn, means: the cause of ctx's end,
// one of this package's errors, or err itself. trailer is the call's, and reached
// reports that a connection took the call.
func (c *Client) Failure(ctx context.Context, err error, trailer metadata.MD, reached bool) error {
	meaning := err
	switch {
	case ctx.Err() != nil:
		meaning = context.Cause(ctx)
	case Misdirected(trailer):
		meaning = ErrOtherNode
	case status.Code(err) == codes.Unavailable && !reached:
		if failure := c.dialer.failure(); failure != nil {
			meaning = failure
		}
	}
	return fmt.Errorf("peer %s: %w", c, meaning)
}

func (c *Client) String() string { return strings.Join(c.urls, ",") }
