package backup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Metrics of Ship. A Keeper exports the gauges while its node leads.
type Metrics struct {
	age, revision *prometheus.Desc
	point         atomic.Pointer[point] // nil: nothing is shipped
	gaps          prometheus.Counter
	failures      *prometheus.CounterVec
}

// point is the end of the backup.
type point struct {
	until    time.Time // of the manifest; when shipping began if it is not known
	revision int64
	term     <-chan struct{} // closed when its leader no longer leads: a place that hangs may hold up Ship
}

// NewMetrics creates the metrics on r; nil: they are kept, not registered.
func NewMetrics(r prometheus.Registerer) *Metrics {
	make := promauto.With(r)
	m := &Metrics{
		age: prometheus.NewDesc("sqlbrain_backup_age_seconds",
			"On the leader with --backup-to: how old the newest moment of the backup is; without any, how long it has "+
				"tried.", nil, nil),
		revision: prometheus.NewDesc("sqlbrain_backup_revision",
			"On the leader with --backup-to: the newest revision of the backup.", nil, nil),
		gaps: make.NewCounter(prometheus.CounterOpts{Name: "sqlbrain_backup_gaps_total",
			Help: "Gaps in the backup, because history was compacted before it could be read: moments in them cannot be " +
				"restored."}),
		failures: make.NewCounterVec(prometheus.CounterOpts{Name: "sqlbrain_backup_failures_total",
			Help: "Failed attempts to continue the backup, by what failed: the database; the place, or the disk that bases " +
				"are made on; denied: access to one of " +
				"them; damaged: a file is not what was written; not_continued: the place has another history."},
			[]string{"reason"}),
	}
	for _, reason := range []string{"database", "place", "denied", "damaged", "not_continued"} {
		m.failures.WithLabelValues(reason)
	}
	if r != nil {
		r.MustRegister(m)
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) { to <- m.age; to <- m.revision }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	p := m.point.Load()
	if p == nil {
		return
	}
	select {
	case <-p.term:
	default:
		to <- prometheus.MustNewConstMetric(m.age, prometheus.GaugeValue, max(0, time.Since(p.until).Seconds()))
		to <- prometheus.MustNewConstMetric(m.revision, prometheus.GaugeValue, float64(p.revision))
	}
}

// failed counts a failure of Ship.
func (m *Metrics) failed(err error) {
	reason := "database"
	_, ofPlace := errors.AsType[placeError](err)
	_, ofFile := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, ErrNotContinued):
		reason = "not_continued"
	case errors.Is(err, ErrDamaged), errors.Is(err, errFormat):
		reason = "damaged"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, sqlstore.ErrDenied):
		reason = "denied"
	case ofPlace, ofFile:
		reason = "place"
	}
	m.failures.WithLabelValues(reason).Inc()
}

// placeError is an error of a place.
type placeError struct{ error }

func (e placeError) Unwrap() error { return e.error }

// measured is a place whose errors are placeErrors.
type measured struct{ Place }

func (p measured) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := p.Place.Read(ctx, name)
	return r, ofPlace(err)
}

func (p measured) Create(ctx context.Context, name string, write func(io.Writer) error) error {
	return ofPlace(p.Place.Create(ctx, name, write))
}

func (p measured) List(ctx context.Context) ([]string, error) {
	names, err := p.Place.List(ctx)
	return names, ofPlace(err)
}

func (p measured) Remove(ctx context.Context, names ...string) error {
	return ofPlace(p.Place.Remove(ctx, names...))
}

func ofPlace(err error) error {
	if err == nil {
		return nil
	}
	return placeError{err}
}
