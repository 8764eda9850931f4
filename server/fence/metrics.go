package fence

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of the fence row. They outlive a Holder.
type Metrics struct {
	InDoubt prometheus.Counter
}

// NewMetrics creates the metrics on r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{
		InDoubt: promauto.With(r).NewCounter(prometheus.CounterOpts{
			Name: "sqlbrain_commit_in_doubt_total",
			Help: "In-doubt commits: their outcome was unknown and was read from the fence row.",
		}),
	}
}
