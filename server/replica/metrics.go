package replica

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
)

// metrics of the caches, and of the parts that have their own.
type metrics struct {
	own      *prometheus.Registry // has the watch hub's too
	withdraw func()

	rangeHits    prometheus.Counter
	rangeMisses  prometheus.Counter
	slowConfirms prometheus.Counter
	fence        *fence.Metrics
	leases       *lease.Metrics
	write        *write.Metrics
	compaction   *compact.Metrics
}

func newMetrics() *metrics {
	m := &metrics{own: prometheus.NewRegistry(), withdraw: func() {}}
	m.rangeHits = m.counter("sqlbrain_range_cache_hits_total", "Ranges answered from memory.")
	m.rangeMisses = m.counter("sqlbrain_range_cache_misses_total", "Ranges that read the table, in whole or in part.")
	m.slowConfirms = m.counter("etcd_server_slow_read_indexes_total",
		"Linearizable reads that took more than half a second to find out what is newest, or did not.")
	m.fence = fence.NewMetrics(m.own)
	m.leases = lease.NewMetrics(m.own)
	m.write = write.NewMetrics(m.own)
	m.compaction = compact.NewMetrics(m.own)
	return m
}

// observe adds the metrics whose values are read from r when they are collected.
func (m *metrics) observe(r *Replica) {
	for name, g := range map[string]struct {
		help string
		get  func() int
	}{
		"sqlbrain_leases": {"Leases that exist.",
			func() int { return ofLeader(r, func(l *leader) int { return l.lessor.Len() }) }},
		"sqlbrain_request_queue": {"Writes that wait for a batch.",
			func() int { return ofLeader(r, func(l *leader) int { return l.pipeline.Waiting() }) }},
		"sqlbrain_index_cache_entries": {"Entries of the index cache.",
			func() int { return ofLeader(r, func(l *leader) int { return l.pipeline.Cached() }) }},
	} {
		promauto.With(m.own).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: g.help},
			func() float64 { return float64(g.get()) })
	}
	promauto.With(m.own).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sqlbrain_no_space", Help: "1 while this node knows a NOSPACE alarm: the quota or the disk is full.",
	}, func() float64 {
		if r.Alarms.NoSpace() {
			return 1
		}
		return 0
	})
	for fate, record := range map[fence.LossFate]string{
		fence.LossPending: "pending", fence.LossWritten: "written", fence.LossUnproven: "unproven",
		fence.LossRefuted: "refuted",
	} {
		promauto.With(m.own).NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sqlbrain_data_lost", ConstLabels: prometheus.Labels{"record": record},
			Help: "1 if this node found that the database lost data, by what became of the record: pending (do not restart " +
				"this node), written (no member serves), unproven (the others continue), refuted (nothing was lost).",
		}, func() float64 {
			if r.Losses.Fate() == fate {
				return 1
			}
			return 0
		})
	}
	r.view.Observe(m.own)
}

// ofLeader returns the result of get for the leadership, 0 if this node does not lead.
func ofLeader(r *Replica, get func(*leader) int) int {
	if l := r.leading.Load(); l != nil {
		return get(l)
	}
	return 0
}

func (m *metrics) counter(name, help string) prometheus.Counter {
	return promauto.With(m.own).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}
