package cluster

import "github.com/prometheus/client_golang/prometheus"

// metrics of the node's role, under the names that etcd's dashboards know.
type metrics struct {
	reg         prometheus.Registerer
	all         []prometheus.Collector
	leaderships prometheus.Counter
	changes     prometheus.Counter
	suspicions  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{reg: reg}
	m.leaderships = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sqlbrain_leaderships_total", Help: "Times this node began to lead.",
	})
	m.changes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "etcd_server_leader_changes_seen_total", Help: "The number of leader changes seen.",
	})
	m.suspicions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sqlbrain_leader_suspicions_total",
		Help: "Leaders that refused connections and were asked through the database whether they live: alive, gone, or unknown.",
	}, []string{"verdict"})
	for _, verdict := range []string{verdictAlive, verdictGone, verdictUnknown} {
		m.suspicions.WithLabelValues(verdict)
	}
	m.register(m.leaderships)
	m.register(m.changes)
	m.register(m.suspicions)
	return m
}

func (m *metrics) register(c prometheus.Collector) {
	if m.reg != nil {
		m.reg.MustRegister(c)
		m.all = append(m.all, c)
	}
}

func (m *metrics) unregister() {
	for _, c := range m.all {
		m.reg.Unregister(c)
	}
}
