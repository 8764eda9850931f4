package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/stats"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// Config configures a Pool.
type Config struct {
	// ClusterID is the cluster that all members must belong to.
	ClusterID uint64
	// Security authenticates the members.
	Security *Security
	Logger   *slog.Logger  // discards
	Stats    stats.Handler // of the calls; nil: none
	// Dial connects to an address; nil: the operating system's network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// The windows of flow control, of a stream and of a connection between members. If gRPC chose them, each side would
// send a ping for each message that it receives while the connection is idle otherwise, to measure its speed: two more
// packets and wake-ups on both sides for each heartbeat of a feed. A stream has room for two messages of a feed.
const (
	StreamWindow     = 2 << 20
	ConnectionWindow = 8 << 20
)

var connectBackoff = backoff.Config{
	BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: timing.PeerReconnect,
}

// Pool holds the connections to the other members. Its methods may be called by several
// goroutines.
type Pool struct {
	cfg      Config
	outcomes *prometheus.CounterVec

	mu      sync.Mutex
	closed  bool
	clients map[uint64]*Client
}

// NewPool returns a pool without connections.
func NewPool(cfg Config) *Pool {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	return &Pool{cfg: cfg, clients: make(map[uint64]*Client), outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sqlbrain_peer_connections_total",
		Help: "Attempts to connect to other members, by outcome: connected, refused (nothing listens), timeout, " +
			"other_node (the URL leads to another process), rejected (by the member), failed.",
	}, []string{"outcome"})}
}

// Outcomes is the metric of attempts to connect.
func (p *Pool) Outcomes() prometheus.Collector { return p.outcomes }

// Member returns the client for a member that listens at urls: http, https, unix or unixs.
// The client connects at its first use. A member has one client at a time: a call with
// other URLs replaces it and ends the calls that use it.
func (p *Pool) Member(id uint64, urls []string) (*Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	old := p.clients[id]
	if old != nil && slices.Equal(old.urls, urls) {
		return old, nil
	}
	c, err := p.connect(id, slices.Clone(urls))
	if err != nil {
		return nil, err
	}
	p.clients[id] = c
	if old != nil {
		_ = old.conn.Close() // fails only if it is closed already
	}
	return c, nil
}

// Close closes all connections, which ends the calls on them.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for _, c := range p.clients {
		errs = append(errs, c.conn.Close())
	}
	clear(p.clients)
	return errors.Join(errs...)
}

// Drop closes the connection to the member, which ends the calls that wait for its
// response. The next use of the member connects again.
func (p *Pool) Drop(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clients[id]; c != nil {
		_ = c.conn.Close() // fails only if it is closed already
		delete(p.clients, id)
	}
}

// Revoke drops the connections to processes that were removed or replaced. The owner of
// the pool calls it each time it has read the members.
func (p *Pool) Revoke() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.clients {
		if c.dialer.outdated() {
			_ = c.conn.Close() // fails only if it is closed already
			delete(p.clients, id)
		}
	}
}

func (p *Pool) connect(id uint64, urls []string) (*Client, error) {
	targets, err := parseURLs(urls)
	if err != nil {
		return nil, err
	}
	d := newDialer(id, targets, p)
	r := manual.NewBuilderWithScheme("sqlbrain-peer")
	r.InitialState(resolved(targets))
	options := []grpc.DialOption{
		grpc.WithResolvers(r),
		grpc.WithContextDialer(d.dial),
		grpc.WithTransportCredentials(dialerCredentials{insecure.NewCredentials(), d}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: connectBackoff, MinConnectTimeout: timing.PeerConnect}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: timing.PeerPing, Timeout: timing.PeerPingTimeout,
			PermitWithoutStream: true}),
		grpc.WithStaticStreamWindowSize(StreamWindow),
		grpc.WithStaticConnWindowSize(ConnectionWindow),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(address(ctx, p.cfg.ClusterID, id), method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(address(ctx, p.cfg.ClusterID, id), desc, cc, method, opts...)
		}),
	}
	if p.cfg.Stats != nil {
		options = append(options, grpc.WithStatsHandler(p.cfg.Stats))
	}
	conn, err := grpc.NewClient(r.Scheme()+":///"+strings.Join(urls, ","), options...)
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	return &Client{urls: urls, conn: conn, dialer: d}, nil
}
