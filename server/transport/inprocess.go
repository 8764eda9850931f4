package transport

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/test/bufconn"
)

// InProcess connects the server to itself, without a port and without a
// certificate. Its calls pass the same interceptors as all calls. The gateway
// and the services that are clients of the others use it.
type InProcess struct {
	listener *bufconn.Listener
	// ownCalls: the calls are this process's own, and not a client's in another form.
	ownCalls bool
	stats    stats.Handler // of the calls; nil: none
	conns    []*grpc.ClientConn
}

const inProcessBuffer = 256 * 1024

// NewInProcess returns a way for calls from this process. If ownCalls is set, they are the process's own and not a
// client's in another form (FromInside). h, which may be nil, gets the statistics of the calls.
func NewInProcess(ownCalls bool, h stats.Handler) *InProcess {
	return &InProcess{listener: bufconn.Listen(inProcessBuffer), ownCalls: ownCalls, stats: h}
}

// Listener returns what the server accepts the calls from.
func (p *InProcess) Listener() net.Listener {
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

// FromInside reports whether the call of ctx is this process's own.
func FromInside(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	_, ok = p.AuthInfo.(insideInfo)
	return ok
}

// Connect returns a new connection, which Close closes.
func (p *InProcess) Connect() (*grpc.ClientConn, error) {
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

// Close closes the connections and the listener. It logs errors.
func (p *InProcess) Close(log *slog.Logger) {
	for _, conn := range p.conns {
		if err := conn.Close(); err != nil {
			log.Warn("closing an in-process connection", "error", err)
		}
	}
	if err := p.listener.Close(); err != nil {
		log.Warn("closing the in-process listener", "error", err)
	}
}
