package status

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

const (
	monitorInterval = time.Second
	// leaderlessChecks is how many checks in a row must find no leader before
	// open streams end: opening them again costs clients much more than waiting
	// a moment does.
	leaderlessChecks = 3
)

// Monitor reports to gRPC's health service, and to the streams that ask for a leader, whether the node is serving.
type Monitor struct {
	node       Node
	health     *health.Server
	loseLeader func()
	log        *slog.Logger

	leaderless int // checks in a row
}

// NewMonitor returns the monitor of n. It calls loseLeader, which must end the streams that ask for a leader, after
// some seconds without one.
func NewMonitor(n Node, h *health.Server, loseLeader func(), log *slog.Logger) *Monitor {
	return &Monitor{node: n, health: h, loseLeader: loseLeader, log: log}
}

// Run checks every second until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	for range retry.Every(ctx, monitorInterval) {
		m.check()
	}
}

func (m *Monitor) check() {
	reason := m.node.Status().NotServing
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
		m.loseLeader()
	}
}
