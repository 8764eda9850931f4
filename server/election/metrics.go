package election

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one Elector. client-go's own provider of election metrics is not
// used: it is one for the whole process, set once, and tells of rounds rather
// than of leaderships.
type metrics struct {
	reg prometheus.Registerer

	isLeader        prometheus.Gauge
	transitions     prometheus.Counter
	renewalFailures prometheus.Counter
	leadFailures    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		reg: reg,
		isLeader: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sqlbrain_election_is_leader", Help: "1 from taking the lock until leading has ended, else 0.",
		}),
		transitions:     counter("sqlbrain_election_transitions_total", "Changes of the lock's holder that this member saw."),
		renewalFailures: counter("sqlbrain_election_renewal_failures_total", "Reads and writes of the lock row that failed while leading, lost races included."),
		leadFailures:    counter("sqlbrain_election_lead_failures_total", "Leaderships that ended by themselves with an error."),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range m.all() {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.isLeader, m.transitions, m.renewalFailures, m.leadFailures}
}

func (m *metrics) unregister() {
	if m.reg == nil {
		return
	}
	for _, c := range m.all() {
		m.reg.Unregister(c)
	}
}
