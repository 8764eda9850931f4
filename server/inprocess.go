package server

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// inProcess connects the server to itself, without a port and without a
// certificate: calls over its connections pass what all calls pass. The gateway
// and the services that are clients of the others use it.
type inProcess struct {
	listener *bufconn.Listener
	conns    []*grpc.ClientConn
}

const inProcessBuffer = 256 * 1024

func newInProcess() *inProcess { return &inProcess{listener: bufconn.Listen(inProcessBuffer)} }

// connect returns a connection of its own, which close closes. The limit on the
// streams of a connection holds for each: calls that make others need two, or
// they might wait for themselves.
func (p *inProcess) connect() (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///in-process",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, fmt.Errorf("server: in-process connection: %w", err)
	}
	p.conns = append(p.conns, conn)
	return conn, nil
}

func (p *inProcess) close(log *slog.Logger) {
	for _, conn := range p.conns {
		if err := conn.Close(); err != nil {
			log.Warn("closing an in-process connection", "error", err)
		}
	}
	if err := p.listener.Close(); err != nil {
		log.Warn("closing the in-process listener", "error", err)
	}
}
