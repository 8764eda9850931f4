package lease

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of leases. They outlive a Lessor.
type Metrics struct {
	granted, revoked, renewed, expired, revocationErrors prometheus.Counter
}

// NewMetrics creates the metrics on r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(r).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &Metrics{
		granted: counter("etcd_debugging_lease_granted_total", "The total number of granted leases."),
		revoked: counter("etcd_debugging_lease_revoked_total", "The total number of revoked leases."),
		renewed: counter("etcd_debugging_lease_renewed_total", "The number of renewed leases seen by the leader."),
		expired: counter("etcd_debugging_server_lease_expired_total", "The total number of expired leases."),
		revocationErrors: counter("sqlbrain_lease_revocation_errors_total",
			"Failed attempts to revoke an expired lease, each of which is repeated after a pause."),
	}
}
