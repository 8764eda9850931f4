package server

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/test/bufconn"
)

// inProcess connects the server to itself, without a port and without a
// certificate: calls over its connections pass what all calls pass. The gateway
// and the services that are clients of the others use it.
type inProcess struct {
	listener *bufconn.Listener
	// ownCalls: what comes this way is this process's own, and not a client's in
	// another form.
	ownCalls bool
	stats    stats.Handler // of the calls; nil: none
	conns    []*grpc.ClientConn
}

const inProcessBuffer = 256 * 1024

func newInProcess(ownCalls bool, h stats.Handler) *inProcess {
	return &inProcess{listener: bufconn.Listen(inProcessBuffer), ownCalls: ownCalls, stats: h}
}

// served returns what the server accepts the calls from.
func (p *inProcess) served() net.Listener {
	if p.ownCalls {
		return ownListener{p.listener}
	}
	return p.listener
}

// ownConn is a connection of this process to itself.
type ownConn struct{ net.Conn }

// ownListener marks its connections as such.
type ownListener struct{ net.Listener }

func (l ownListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return ownConn{c}, nil
}

// insideInfo is what calls on such a connection are known by.
type insideInfo struct{ credentials.CommonAuthInfo }

func (insideInfo) AuthType() string { return "inside" }

// connect returns a connection of its own, which close closes. The limit on the
// streams of a connection holds for each: calls that make others need two, or
// they might wait for themselves.
func (p *inProcess) connect() (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	}
	if p.stats != nil {
		options = append(options, grpc.WithStatsHandler(p.stats))
	}
	conn, err := grpc.NewClient("passthrough:///in-process", options...)
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
