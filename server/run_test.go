package server

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

const loopback = "http://127.0.0.1:0"

// testLog writes to the test's log.
type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("%s", p)
	return len(p), nil
}

// runServer runs s until the test ends, or stop is called, and reports Run's error.
func runServer(t testing.TB, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(t, <-done)
		}
	}
	t.Cleanup(stop)
	return stop
}

func testConfig(t testing.TB) Config {
	cfg := DefaultConfig()
	cfg.ListenClientURLs = []string{loopback}
	cfg.Logger = slog.New(slog.NewTextHandler(testLog{t}, nil))
	cfg.StopTimeout = eventually.Deadline
	cfg.RequestTimeout, cfg.SlowRequest = eventually.Deadline, time.Hour // a busy machine makes no difference
	return cfg
}

// newFake returns a server over a fake; a nil stream means that watches are closed.
func newFake(t *testing.T, n *fakeNode, stream etcd.WatchStream, change ...func(*Config)) (*Server, error) {
	cfg := testConfig(t)
	for _, c := range change {
		c(&cfg)
	}
	return newServer(cfg, nodeOfFake(n, stream))
}

// startFake runs a server over a fake.
func startFake(t *testing.T, n *fakeNode, stream etcd.WatchStream, change ...func(*Config)) *Server {
	t.Helper()
	s, err := newFake(t, n, stream, change...)
	require.NoError(t, err)
	runServer(t, s)
	return s
}

// requireRefused requires that there is no server with the changed settings, for a reason that has the text.
func requireRefused(t *testing.T, text string, change func(*Config)) {
	t.Helper()
	_, err := newFake(t, &fakeNode{}, nil, change)
	require.ErrorContains(t, err, text)
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Deadline)
	t.Cleanup(cancel)
	return ctx
}

func newClient(t *testing.T, s *Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.ClientURLs(), Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// dial returns a plain gRPC connection to s.
func dial(t testing.TB, s *Server, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.clients[0].Addr().String(),
		append(more, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// startReplica returns a server over a real backend on an empty store.
func startReplica(t *testing.T, change ...func(*Config)) *Server {
	t.Helper()
	return startReplicaOf(t, replicaConfig(), change...)
}

// replicaConfig is that of a replica whose requests a busy machine does not end.
func replicaConfig() replica.Config {
	own := replica.DefaultConfig()
	own.RequestTimeout = eventually.Deadline
	return own
}

// startReplicaOf is startReplica with settings of the replica.
func startReplicaOf(t *testing.T, own replica.Config, change ...func(*Config)) *Server {
	t.Helper()
	s, _ := startOn(t, memstore.New(), own, nil, change...)
	return s
}

// startOn runs a server on a replica of store, until the test ends or stop is called. replace, if not nil, replaces
// parts of it.
func startOn(t *testing.T, store sqlstore.Store, own replica.Config, replace func(*node),
	change ...func(*Config)) (s *Server, stop func()) {
	t.Helper()
	if own.Logger == nil {
		own.Logger = slog.New(slog.DiscardHandler)
	}
	b, err := replica.OpenLeader(context.Background(), store, own)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	cfg := testConfig(t)
	for _, c := range change {
		c(&cfg)
	}
	n := nodeOf(b)
	if replace != nil {
		replace(&n)
	}
	s, err = newServer(cfg, n)
	require.NoError(t, err)
	return s, runServer(t, s)
}
