package link

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	cluster  = uint64(0xc1)
	memberID = uint64(0xa2)
)

// node is a member with a service: Check answers, and the stream of Watch sends
// a message every few milliseconds.
type node struct {
	healthpb.UnimplementedHealthServer
}

func (node) ClusterID() uint64 { return cluster }
func (node) MemberID() uint64  { return memberID }

func (node) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return &healthpb.HealthCheckResponse{}, nil
}

func (node) Watch(_ *healthpb.HealthCheckRequest,
	stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	for {
		if err := stream.Send(&healthpb.HealthCheckResponse{}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// serve runs a gRPC server of a node on the loopback, and returns its URL. Without credentials
// among the options it has those of shared.
func serve(t *testing.T, options ...grpc.ServerOption) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serveOn(t, l, options...)
	return "http://" + l.Addr().String()
}

func serveOn(t *testing.T, l net.Listener, options ...grpc.ServerOption) {
	g := grpc.NewServer(append([]grpc.ServerOption{grpc.Creds(shared().Accept()),
		grpc.UnaryInterceptor(CheckUnary(node{})), grpc.StreamInterceptor(CheckStream(node{}))}, options...)...)
	healthpb.RegisterHealthServer(g, node{})
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		require.NoError(t, <-done)
	})
}

// ask makes a call, and returns what its error means.
func ask(ctx context.Context, c *Client) error {
	var (
		trailer metadata.MD
		reached peer.Peer
	)
	_, err := healthpb.NewHealthClient(c.Conn()).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer),
		grpc.Peer(&reached))
	if err != nil {
		return c.Failure(ctx, err, trailer, reached.Addr != nil)
	}
	return nil
}

// stream is a stream of a member's messages.
type stream grpc.ServerStreamingClient[healthpb.HealthCheckResponse]

// open opens a stream, and receives its first message.
func open(t *testing.T, c *Client) stream {
	t.Helper()
	s, err := healthpb.NewHealthClient(c.Conn()).Watch(testContext(t), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	requireOpen(t, s)
	return s
}

func requireOpen(t *testing.T, s stream, why ...any) {
	t.Helper()
	for range 3 { // the transport may have received some before it was closed
		_, err := s.Recv()
		require.NoError(t, err, why...)
	}
}

// requireEnds waits for the end of a stream with an error.
func requireEnds(t *testing.T, s stream) {
	t.Helper()
	for {
		if _, err := s.Recv(); err != nil {
			return
		}
	}
}

// table is the members as they are, and as one of them has seen them.
type table struct {
	mu           sync.Mutex
	now, current []member.Member
	refreshes    int
	err          error
}

func (m *table) Cached() []member.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

func (m *table) Refresh(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refreshes++
	if m.err == nil {
		m.current = slices.Clone(m.now)
	}
	return m.err
}

// set puts members in the table, for the next Refresh to see.
func (m *table) set(members ...member.Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = members
}

func (m *table) looks() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refreshes
}

// shared is the security of members that all have the same certificate.
var shared = sync.OnceValue(func() *Security {
	own := must(NewCertificate(tlsfiles.Config{}, slog.New(slog.DiscardHandler)))
	members := &table{}
	for _, id := range []uint64{memberID, caller} {
		members.current = append(members.current, member.Member{ID: id, Fingerprint: own.Fingerprint()})
	}
	return NewSecurity(SecurityConfig{Certificate: own, Members: members})
})

func newPool(t *testing.T, change ...func(*Config)) *Pool {
	t.Helper()
	cfg := Config{ClusterID: cluster, Security: shared()}
	for _, c := range change {
		c(&cfg)
	}
	p := NewPool(cfg)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func newClient(t *testing.T, url string, change ...func(*Config)) *Client {
	t.Helper()
	c, err := newPool(t, change...).Member(memberID, []string{url})
	require.NoError(t, err)
	return c
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Deadline)
	t.Cleanup(cancel)
	return ctx
}
