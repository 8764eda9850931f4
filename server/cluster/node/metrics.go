package node

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sqlbrain/sqlbrain/sqlstore/metric"
)

// metrics of the node's role, under the names that etcd's dashboards know.
type metrics struct {
	changes  prometheus.Counter
	withdraw func()
}

// newMetrics publishes the node's metrics, and others, which its parts have made.
func newMetrics(reg prometheus.Registerer, others ...prometheus.Collector) (m *metrics, err error) {
	own := prometheus.NewRegistry()
	with := promauto.With(own)
	m = &metrics{
		changes: with.NewCounter(prometheus.CounterOpts{
			Name: "etcd_server_leader_changes_seen_total", Help: "The number of leader changes seen.",
		}),
	}
	own.MustRegister(others...)
	m.withdraw, err = metric.Publish(reg, own)
	return m, err
}
