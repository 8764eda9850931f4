package status

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
)

func TestMonitorRunsUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMonitor(&fakeNode{serving: mvcc.ErrNotServing}, health.NewServer(), func() {}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), 2*monitorInterval+monitorInterval/2)
		defer cancel()
		m.Run(ctx)
		require.Equal(t, 2, m.leaderless)
	})
}

func TestMonitorReportsWhetherTheNodeServes(t *testing.T) {
	n := &fakeNode{}
	hs := health.NewServer()
	lost := 0
	m := NewMonitor(n, hs, func() { lost++ }, slog.New(slog.DiscardHandler))
	check := func(want healthpb.HealthCheckResponse_ServingStatus) {
		m.check()
		r, err := hs.Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		require.Equal(t, want, r.Status)
	}
	check(healthpb.HealthCheckResponse_SERVING)
	n.serving = mvcc.ErrNotServing
	for range leaderlessChecks - 1 {
		check(healthpb.HealthCheckResponse_NOT_SERVING)
	}
	require.Zero(t, lost, "a short time without a leader does not end streams")
	check(healthpb.HealthCheckResponse_NOT_SERVING)
	require.Equal(t, 1, lost)
	n.serving = nil
	check(healthpb.HealthCheckResponse_SERVING)
	require.Equal(t, 1, lost)
}

type fakeNode struct {
	Node
	serving error
}

func (n *fakeNode) Status() replica.Status { return replica.Status{NotServing: n.serving} }
