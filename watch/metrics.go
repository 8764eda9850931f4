package watch

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are a hub's metrics. Where one means what etcd's does, it has etcd's
// name.
type metrics struct {
	streams      prometheus.Gauge
	watchers     prometheus.Gauge
	slow         prometheus.Gauge
	pending      prometheus.Gauge
	events       prometheus.Counter
	catchUpRing  prometheus.Counter
	catchUpStore prometheus.Counter
	sourceErrors prometheus.Counter
}

func newMetrics(h *Hub) *metrics {
	with := promauto.With(h.cfg.Registerer)
	gauge := func(name, help string) prometheus.Gauge {
		return with.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return with.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	ringGauge := func(name, help string, value func(*ring) int) {
		with.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			h.mu.Lock()
			defer h.mu.Unlock()
			return float64(value(&h.ring))
		})
	}
	ringGauge("sqlbrain_watch_ring_events", "Events in the ring of recent events.",
		func(r *ring) int { return len(r.events()) })
	ringGauge("sqlbrain_watch_ring_bytes", "Bytes of the events in the ring of recent events.",
		func(r *ring) int { return r.bytes })
	with.NewGaugeFunc(prometheus.GaugeOpts{Name: "sqlbrain_watch_queued_bytes",
		Help: "Bytes of the events that are queued for watchers, or are being sent to them."},
		func() float64 { return float64(h.queued.bytes.Load()) })
	catchUp := with.NewCounterVec(prometheus.CounterOpts{
		Name: "sqlbrain_watch_catchup_total",
		Help: "Steps of replaying history for watchers that are behind, by where it was read.",
	}, []string{"from"})
	return &metrics{
		streams:  gauge("etcd_debugging_mvcc_watch_stream_total", "Watch streams."),
		watchers: gauge("etcd_debugging_mvcc_watcher_total", "Watchers."),
		slow:     gauge("etcd_debugging_mvcc_slow_watcher_total", "Watchers that are behind."),
		pending:  gauge("etcd_debugging_mvcc_pending_events_total", "Events queued for watchers."),
		events:   counter("etcd_debugging_mvcc_events_total", "Events handed to watch clients."),
		sourceErrors: counter("sqlbrain_watch_source_errors_total",
			"Errors of the history's store, other than that it was compacted."),
		catchUpRing:  catchUp.WithLabelValues("ring"),
		catchUpStore: catchUp.WithLabelValues("store"),
	}
}
