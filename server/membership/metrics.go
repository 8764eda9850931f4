package membership

import "github.com/prometheus/client_golang/prometheus"

// metrics is a prometheus.Collector of all of the package's metrics.
type metrics struct {
	registerer prometheus.Registerer
	view       *view
	failures   prometheus.Counter
}

var membersDesc = prometheus.NewDesc("sqlbrain_members",
	"Members of the cluster as this one last saw them, by state.", []string{"state"}, nil)

func newMetrics(reg prometheus.Registerer, v *view) (*metrics, error) {
	m := &metrics{
		registerer: reg,
		view:       v,
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sqlbrain_membership_heartbeat_failures_total",
			Help: "Heartbeats that could not be sent.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	return m, reg.Register(m)
}

func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- membersDesc
	m.failures.Describe(ch)
}

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	counts := map[string]int{"alive": 0, "stopped": 0, "silent": 0, "unstarted": 0}
	for _, member := range m.view.last() {
		counts[state(member)]++
	}
	for state, n := range counts {
		ch <- prometheus.MustNewConstMetric(membersDesc, prometheus.GaugeValue, float64(n), state)
	}
	m.failures.Collect(ch)
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

// close takes the metrics back from the registerer.
func (m *metrics) close() {
	if m.registerer != nil {
		m.registerer.Unregister(m)
	}
}
