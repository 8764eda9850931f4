package server

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/replica"
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
	cfg.StopTimeout = eventually.Patience
	cfg.RequestTimeout, cfg.SlowRequest = eventually.Patience, time.Hour // a busy machine makes no difference
	return cfg
}

// startFake runs a server over a fake; a nil stream means that there are no watches.
func startFake(t *testing.T, n *fakeNode, stream etcd.WatchStream, change ...func(*Config)) *Server {
	t.Helper()
	cfg := testConfig(t)
	for _, c := range change {
		c(&cfg)
	}
	s, err := newServer(cfg, nodeOfFake(n, stream))
	require.NoError(t, err)
	runServer(t, s)
	return s
}

// dial returns a plain gRPC connection to s.
func dial(t testing.TB, s *Server) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.clients[0].Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// startReplica returns a server over a real backend on an empty store.
func startReplica(t *testing.T, change ...func(*Config)) *Server {
	t.Helper()
	own := replica.DefaultConfig()
	own.RequestTimeout = eventually.Patience
	return startReplicaOf(t, own, change...)
}

// startReplicaOf is startReplica with settings of the replica.
func startReplicaOf(t *testing.T, own replica.Config, change ...func(*Config)) *Server {
	t.Helper()
	store := memstore.New()
	own.Logger = slog.New(slog.DiscardHandler)
	b, err := replica.OpenLeader(context.Background(), store, own)
	require.NoError(t, err)
	cfg := testConfig(t)
	for _, c := range change {
		c(&cfg)
	}
	s, err := New(cfg, b)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.Close(context.Background()))
		require.NoError(t, store.Close())
	})
	runServer(t, s)
	return s
}
