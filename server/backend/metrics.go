package backend

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
	m.slowConfirms = m.counter("etcd_server_slow_read_indexes_total", "Linearizable reads that took more than half a second to find out what is newest, or did not.")
	m.fence = fence.NewMetrics(m.own)
	m.leases = lease.NewMetrics(m.own)
	m.write = write.NewMetrics(m.own)
	m.compaction = compact.NewMetrics(m.own)
	return m
}

// observe adds the metrics whose values are read from b when they are collected.
func (m *metrics) observe(b *Backend) {
	for name, g := range map[string]struct {
		help string
		get  func() int
	}{
		"sqlbrain_leases":              {"Leases that exist.", func() int { return ofLeader(b, func(l *leader) int { return l.lessor.Len() }) }},
		"sqlbrain_request_queue":       {"Writes that wait for a batch.", func() int { return ofLeader(b, func(l *leader) int { return l.pipeline.Waiting() }) }},
		"sqlbrain_index_cache_entries": {"Entries of the index cache.", func() int { return ofLeader(b, func(l *leader) int { return l.pipeline.Cached() }) }},
	} {
		promauto.With(m.own).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: g.help}, func() float64 { return float64(g.get()) })
	}
	b.view.Observe(m.own)
}

// ofLeader returns the result of get for the leadership, 0 if this node does not lead.
func ofLeader(b *Backend, get func(*leader) int) int {
	if l := b.leading.Load(); l != nil {
		return get(l)
	}
	return 0
}

func (m *metrics) counter(name, help string) prometheus.Counter {
	return promauto.With(m.own).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}
