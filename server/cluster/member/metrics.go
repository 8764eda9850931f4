package member

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sqlbrain/sqlbrain/sqlstore/metric"
)

// What came of the challenge to a leader.
const (
	leaderAlive = "alive"
	leaderGone  = "gone"
)

// metrics are those of the package.
type metrics struct {
	failures        prometheus.Counter
	renewalFailures prometheus.Counter
	suspicions      *prometheus.CounterVec
	withdraw        func()
}

func newMetrics(reg prometheus.Registerer, v *view) (m *metrics, err error) {
	own := prometheus.NewRegistry()
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(own).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m = &metrics{
		failures: counter("sqlbrain_membership_heartbeat_failures_total", "Heartbeats that could not be sent."),
		renewalFailures: counter("sqlbrain_election_renewal_failures_total",
			"Reads and writes of the lock row that failed while leading."),
	}
	m.suspicions = promauto.With(own).NewCounterVec(prometheus.CounterOpts{
		Name: "sqlbrain_leader_suspicions_total",
		Help: "Leaders that this member did not hear and challenged in the database, by what came of it: alive, or gone.",
	}, []string{"result"})
	for _, result := range []string{leaderAlive, leaderGone} {
		m.suspicions.WithLabelValues(result)
	}
	for _, s := range []string{"alive", "stopped", "silent", "unstarted"} {
		promauto.With(own).NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sqlbrain_members", Help: "Members of the cluster as this one last saw them, by state.",
			ConstLabels: prometheus.Labels{"state": s},
		}, func() float64 {
			n := 0
			for _, member := range v.last() {
				if state(member) == s {
					n++
				}
			}
			return float64(n)
		})
	}
	m.withdraw, err = metric.Publish(reg, own)
	return m, err
}

func state(m Member) string {
	switch {
	case m.Alive:
		return "alive"
	case m.Stopped:
		return "stopped"
	case m.Started():
		return "silent"
	}
	return "unstarted"
}
