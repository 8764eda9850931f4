package server

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const (
	monitorInterval = time.Second
	// leaderlessChecks is how many checks in a row must find no leader before
	// open streams end: opening them again costs clients much more than waiting
	// a moment does.
	leaderlessChecks = 3
)

// monitor tells gRPC's health service, and the streams that ask for a leader,
// whether the backend is serving.
type monitor struct {
	id      identity
	health  *health.Server
	streams *streams
	log     *slog.Logger

	leaderless int // checks in a row
}

// run checks at every tick until ctx ends.
func (m *monitor) run(ctx context.Context, ticks <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			m.check()
		}
	}
}

func (m *monitor) check() {
	reason := m.id.Status().Serving
	if reason == nil {
		if m.leaderless > 0 {
			m.log.Info("serving again")
			m.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
		}
		m.leaderless = 0
		return
	}
	if m.leaderless == 0 {
		m.log.Warn("not serving", "error", reason)
		m.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	}
	m.leaderless++
	if m.leaderless >= leaderlessChecks {
		m.streams.loseLeader()
	}
}
