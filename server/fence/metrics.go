package fence

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of the fence row. They outlive a Holder.
type Metrics struct {
	Settled prometheus.Counter
}

// NewMetrics creates the metrics on r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{
		Settled: promauto.With(r).NewCounter(prometheus.CounterOpts{
			Name: "sqlbrain_commit_settled_total", Help: "Commits whose outcome had to be read from the fence row.",
		}),
	}
}
