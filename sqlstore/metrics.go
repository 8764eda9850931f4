package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

type metrics struct {
	registerer prometheus.Registerer
	registered []prometheus.Collector
	duration   *prometheus.HistogramVec
	errors     *prometheus.CounterVec
	failures   *prometheus.CounterVec
	retries    prometheus.Counter
}

func newMetrics(r prometheus.Registerer, db *Database) (*metrics, error) {
	m := &metrics{
		registerer: r,
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sqlbrain_sql_duration_seconds",
			Help:    "Time a call of the store took, waiting for a connection included.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 17), // 0.1 ms to 6.5 s
		}, []string{"statement"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sqlbrain_sql_errors_total",
			Help: "Calls of the store that failed, by what their error means.",
		}, []string{"statement", "kind"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sqlbrain_sql_failures_total",
			Help: "Errors of the engine or on the way to it, by what they mean for the statement, those behind which a commit was repeated included.",
		}, []string{"class"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sqlbrain_sql_commit_retries_total",
			Help: "Commits that lost against another transaction, or whose connection was gone before anything was sent, and were tried again.",
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.duration, m.errors, m.failures, m.retries,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "sqlbrain_sql_reconnects_total",
			Help: "Times all connections were given up, because the server turned read-only or another one answered.",
		}, func() float64 { return float64(db.primary.lost()) }),
		collectors.NewDBStatsCollector(db.read.DB, "read"), collectors.NewDBStatsCollector(db.write.DB, "write"),
	} {
		if err := r.Register(c); err != nil {
			m.close()
			return nil, err
		}
		m.registered = append(m.registered, c)
	}
	return m, nil
}

// close unregisters the metrics, so that a store may be opened anew.
func (m *metrics) close() {
	for _, c := range m.registered {
		m.registerer.Unregister(c)
	}
}

func (m *metrics) observe(statement string, d time.Duration, err error) {
	m.duration.WithLabelValues(statement).Observe(d.Seconds())
	if kind := errorKind(err); kind != "" {
		m.errors.WithLabelValues(statement, kind).Inc()
	}
}

// failed counts err by its class, unless it is the store's own, or its caller's.
func (m *metrics) failed(d dialect, err error) {
	switch errorKind(err) {
	case "", "conflict", "row_missing", "closed", "context":
		return
	}
	m.failures.WithLabelValues(d.classify(err).String()).Inc()
}

// errorKind returns the metric's label for err, "" if nothing is wrong.
func errorKind(err error) string {
	var c *Conflict
	switch {
	case err == nil, errors.Is(err, ErrKeyNotFound):
		return ""
	case errors.As(err, &c):
		return "conflict"
	case errors.Is(err, ErrUncertain):
		return "uncertain"
	case errors.Is(err, ErrRowMissing):
		return "row_missing"
	case errors.Is(err, ErrTooLarge):
		return "too_large"
	case errors.Is(err, ErrClosed):
		return "closed"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "context"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	}
	return "other"
}
