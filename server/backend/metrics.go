package backend

import "github.com/prometheus/client_golang/prometheus"

// metrics of the pipeline, the caches, leases and compaction.
type metrics struct {
	reg prometheus.Registerer
	all []prometheus.Collector

	queue            prometheus.Histogram
	commit           prometheus.Histogram
	batchChanges     prometheus.Histogram
	commitRetries    prometheus.Counter
	settled          prometheus.Counter
	indexMisses      prometheus.Counter
	presumedWrongly  prometheus.Counter
	rangeHits        prometheus.Counter
	rangeMisses      prometheus.Counter
	leasesExpired    prometheus.Counter
	leasesGranted    prometheus.Counter
	leasesRevoked    prometheus.Counter
	leasesRenewed    prometheus.Counter
	revocationErrors prometheus.Counter
	slowConfirms     prometheus.Counter
	compactedRows    prometheus.Counter
	compactionErrors prometheus.Counter
	compactionLag    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{reg: reg}
	latency := prometheus.ExponentialBuckets(0.0001, 2, 18)
	m.queue = m.histogram("sqlbrain_request_pipeline_duration_seconds", "Time from queueing a write to its answer.", latency)
	m.commit = m.histogram("sqlbrain_commit_duration_seconds", "Time of one commit attempt, settling included.", latency)
	m.batchChanges = m.histogram("sqlbrain_commit_changes", "Key changes in one commit.", prometheus.ExponentialBuckets(1, 2, 12))
	m.commitRetries = m.counter("sqlbrain_commit_retries_total", "Commits that had to be attempted again.")
	m.settled = m.counter("sqlbrain_commit_settled_total", "Commits whose outcome had to be read from the chain row.")
	m.indexMisses = m.counter("sqlbrain_index_cache_misses_total", "Index rows read singly while evaluating.")
	m.presumedWrongly = m.counter("sqlbrain_presumed_wrongly_total", "Batches evaluated again because a key to be created was there.")
	m.rangeHits = m.counter("sqlbrain_range_cache_hits_total", "Ranges answered from memory.")
	m.rangeMisses = m.counter("sqlbrain_range_cache_misses_total", "Ranges that read the table, in whole or in part.")
	m.leasesExpired = m.counter("etcd_debugging_server_lease_expired_total", "The total number of expired leases.")
	m.leasesGranted = m.counter("etcd_debugging_lease_granted_total", "The total number of granted leases.")
	m.leasesRevoked = m.counter("etcd_debugging_lease_revoked_total", "The total number of revoked leases.")
	m.leasesRenewed = m.counter("etcd_debugging_lease_renewed_total", "The number of renewed leases seen by the leader.")
	m.revocationErrors = m.counter("sqlbrain_lease_revocation_errors_total", "Failed attempts to revoke an expired lease, each of which is repeated after a pause.")
	m.slowConfirms = m.counter("etcd_server_slow_read_indexes_total", "Linearizable reads that took more than half a second to find out what is newest, or did not.")
	m.compactedRows = m.counter("sqlbrain_compaction_removed_rows_total", "Rows removed by compaction.")
	m.compactionErrors = m.counter("sqlbrain_compaction_errors_total", "Failed attempts to remove compacted rows.")
	m.compactionLag = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sqlbrain_compaction_lag_revisions", Help: "Revisions below the compact revision whose garbage is not removed yet.",
	})
	m.register(m.compactionLag)
	return m
}

// observe adds what is read from the backend when it is asked for.
func (m *metrics) observe(b *Backend) {
	for name, g := range map[string]struct {
		help string
		get  func() int
	}{
		"sqlbrain_leases":               {"Leases that exist.", func() int { return ofLeader(b, func(l *leader) int { return l.lessor.count() }) }},
		"sqlbrain_request_queue":        {"Writes that wait for a batch.", func() int { return ofLeader(b, func(l *leader) int { return len(l.queue) }) }},
		"sqlbrain_record_cache_bytes":   {"Bytes in the cache of current records.", b.records.bytes},
		"sqlbrain_range_cache_bytes":    {"Bytes in the cache of current ranges.", func() int { return b.ranges.stats().bytes }},
		"sqlbrain_range_cache_segments": {"Pieces of the key space that the cache of current ranges holds.", func() int { return b.ranges.stats().segments }},
		"sqlbrain_count_pieces":         {"Pieces of the key space whose number of keys is known.", b.pieces.len},
		"sqlbrain_index_cache_entries":  {"Entries of the index cache.", func() int { return ofLeader(b, func(l *leader) int { return l.index.entries() }) }},
	} {
		m.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: g.help}, func() float64 { return float64(g.get()) }))
	}
	m.register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sqlbrain_range_cache_evictions_total", Help: "Segments of ranges given up for others.",
	}, func() float64 { return float64(b.ranges.stats().evictions) }))
}

// countRange counts a range of several keys by whether it had to read the table.
func (m *metrics) countRange(table bool) {
	if table {
		m.rangeMisses.Inc()
	} else {
		m.rangeHits.Inc()
	}
}

// ofLeader returns what get says of the leadership, 0 if there is none.
func ofLeader(b *Backend, get func(*leader) int) int {
	if l := b.leading.Load(); l != nil {
		return get(l)
	}
	return 0
}

func (m *metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	m.register(h)
	return h
}

func (m *metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	m.register(c)
	return c
}

func (m *metrics) register(c prometheus.Collector) {
	if m.reg != nil {
		m.reg.MustRegister(c)
		m.all = append(m.all, c)
	}
}

// unregister lets another backend use the registry.
func (m *metrics) unregister() {
	for _, c := range m.all {
		m.reg.Unregister(c)
	}
}
