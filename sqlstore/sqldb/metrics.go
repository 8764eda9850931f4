package sqldb

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/metric"
)

// statements and errorKinds are the labels of sqlbrain_sql_errors_total. All pairs exist from the start, at 0, because
// the first value of a counter is no increase to an alert.
var (
	statements = []string{
		"commit_single", "commit_tx", "count", "defragment", "get", "iter", "latest_at_or_before", "lengths",
		"list", "lookup", "measure", "multiget", "partitions", "seek_nth", "size", "timestamp",
	}
	errorKinds = []string{"conflict", "uncertain", "row_missing", "too_large", "closed", "context", "unavailable", "other"}
)

type metrics struct {
	duration *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	failures *prometheus.CounterVec
	retries  prometheus.Counter
	withdraw func()
}

func newMetrics(r prometheus.Registerer, db *Database) (m *metrics, err error) {
	own := prometheus.NewRegistry()
	with := promauto.With(own)
	m = &metrics{
		duration: with.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sqlbrain_sql_duration_seconds",
			Help:    "Time a call of the store took, waiting for a connection included.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 17), // 0.1 ms to 6.5 s
		}, []string{"statement"}),
		errors: with.NewCounterVec(prometheus.CounterOpts{
			Name: "sqlbrain_sql_errors_total",
			Help: "Calls of the store that failed, by what their error means.",
		}, []string{"statement", "kind"}),
		failures: with.NewCounterVec(prometheus.CounterOpts{
			Name: "sqlbrain_sql_failures_total",
			Help: "Errors of the engine or on the way to it, by what they mean for the statement, those behind which a commit " +
				"was repeated included.",
		}, []string{"class"}),
		retries: with.NewCounter(prometheus.CounterOpts{
			Name: "sqlbrain_sql_commit_retries_total",
			Help: "Commits that lost against another transaction, or whose connection was gone before anything was sent, and " +
				"were tried again.",
		}),
	}
	for _, statement := range statements {
		for _, kind := range errorKinds {
			m.errors.WithLabelValues(statement, kind)
		}
	}
	with.NewCounterFunc(prometheus.CounterOpts{
		Name: "sqlbrain_sql_reconnects_total",
		Help: "Times all connections were given up, because the server turned read-only or another one answered.",
	}, func() float64 { return float64(db.engine.Reconnects()) })
	own.MustRegister(db.engine.Collectors()...)
	own.MustRegister(collectors.NewDBStatsCollector(db.read.DB, "read"),
		collectors.NewDBStatsCollector(db.write.DB, "write"))
	m.withdraw, err = metric.Publish(r, own)
	return m, err
}

func (m *metrics) observe(statement string, d time.Duration, err error) {
	m.duration.WithLabelValues(statement).Observe(d.Seconds())
	if kind := errorKind(err); kind != "" {
		m.errors.WithLabelValues(statement, kind).Inc()
	}
}

// failed counts err by its class, unless the store or its caller caused it.
func (m *metrics) failed(e Engine, err error) {
	switch errorKind(err) {
	case "", "conflict", "row_missing", "closed", "context":
		return
	}
	m.failures.WithLabelValues(Classify(e, err).String()).Inc()
}

// errorKind returns the metric's label for err, one of errorKinds, "" for no error.
func errorKind(err error) string {
	switch {
	case err == nil, errors.Is(err, sqlstore.ErrKeyNotFound):
		return ""
	case sqlstore.IsConflict(err):
		return "conflict"
	case errors.Is(err, sqlstore.ErrUncertain):
		return "uncertain"
	case errors.Is(err, sqlstore.ErrRowMissing):
		return "row_missing"
	case errors.Is(err, sqlstore.ErrTooLarge):
		return "too_large"
	case errors.Is(err, sqlstore.ErrClosed):
		return "closed"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "context"
	case errors.Is(err, sqlstore.ErrUnavailable):
		return "unavailable"
	}
	return "other"
}
