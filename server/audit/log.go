package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sqlbrain/sqlbrain/sqlstore/metric"
)

// Values of Config.To that are no file.
const (
	ToLog = "log"
	Off   = "off"
)

// Config configures a Log.
type Config struct {
	// To is Off, ToLog for Logger, or the path of a file, which is created with mode 0600.
	To         string
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: none
	// Start is recorded in a file with the line that says that the program starts.
	Start []slog.Attr
}

const (
	// message is that of the lines that go to the process log.
	message = "audit"
	// queueLength bounds the events that wait for the sink. Events that may be suppressed use
	// half of it.
	queueLength = 1024
	// maxWait bounds how long a request waits until its event is recorded.
	maxWait = time.Second
	// stopWait bounds how long Close waits for the sink.
	stopWait = 3 * time.Second
	// tickInterval is how often a sink that failed is tried again.
	tickInterval = time.Second
	// complainInterval is the least time between two complaints about the sink.
	complainInterval = time.Minute
)

// Log is an audit log. A nil one records nothing. Safe for concurrent use.
type Log struct {
	sink    slog.Handler
	file    *file // nil: the process log
	logger  *slog.Logger
	queue   chan entry
	now     func() time.Time
	maxWait time.Duration

	counting chan struct{} // signals the writer that events were suppressed; one slot
	stopping chan struct{} // closed by Close
	stopped  chan struct{} // closed when the writer has ended
	once     sync.Once

	mu     sync.Mutex
	limits map[Kind]*limit

	// The writer's own.
	failing    bool
	complained time.Time

	lost atomic.Int64 // lines that the sink did not take since it fails

	events, suppressions, failures *prometheus.CounterVec
	state                          prometheus.Gauge
	withdraw                       func()
}

// entry is a line on its way to the sink.
type entry struct {
	record slog.Record
	source Source
	change bool
	done   chan struct{} // closed when it was written, or went to the process log; may be nil
}

// Open opens the log; nil if it is off. A file that cannot be opened is an error.
func Open(cfg Config) (*Log, error) {
	if cfg.To == Off {
		return nil, nil
	}
	l, err := newLog(cfg)
	if err != nil {
		return nil, err
	}
	l.start(cfg.Start...)
	return l, nil
}

func newLog(cfg Config) (*Log, error) {
	own := prometheus.NewRegistry()
	with := promauto.With(own)
	l := &Log{
		sink: cfg.Logger.Handler(), logger: cfg.Logger, now: time.Now, maxWait: maxWait,
		queue: make(chan entry, queueLength), counting: make(chan struct{}, 1), stopping: make(chan struct{}),
		stopped: make(chan struct{}), limits: map[Kind]*limit{},
		events: with.NewCounterVec(prometheus.CounterOpts{
			Name: "sqlbrain_audit_events_total", Help: "Events for the audit log, those that were suppressed or lost included.",
		}, []string{"event"}),
		suppressions: with.NewCounterVec(prometheus.CounterOpts{
			Name: "sqlbrain_audit_suppressed_total",
			Help: "Events that were only counted in the audit log, since there were too many.",
		}, []string{"event"}),
		failures: with.NewCounterVec(prometheus.CounterOpts{
			Name: "sqlbrain_audit_failures_total",
			Help: "Lines that the audit log did not take: changes are in the process log instead, others are lost.",
		}, []string{"fate"}),
		state: with.NewGauge(prometheus.GaugeOpts{
			Name: "sqlbrain_audit_failing", Help: "1 while the audit log cannot be written.",
		}),
	}
	if cfg.To != ToLog {
		l.file = &file{path: cfg.To}
		if err := l.file.open(); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		l.file.warnOfMode(cfg.Logger)
		l.sink = lines(l.file)
	}
	for _, fate := range []string{fateLogged, fateLost} {
		l.failures.WithLabelValues(fate)
	}
	var err error
	if l.withdraw, err = metric.Publish(cfg.Registerer, own); err != nil {
		return nil, errors.Join(fmt.Errorf("audit log: metrics: %w", err), l.file.close())
	}
	return l, nil
}

// start starts the writer. The first line of a file has attrs.
func (l *Log) start(attrs ...slog.Attr) {
	go l.write()
	if l.file != nil {
		l.line(started, attrs...)
	}
}

// lines writes records as JSON without the level, which says nothing here.
func lines(f *file) slog.Handler {
	return slog.NewJSONHandler(f, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return a
	}})
}

const (
	fateLogged = "logged"
	fateLost   = "lost"
)

// Record records an event of source, which describe makes if it is not suppressed. ok says that
// the request succeeded. Record returns when a successful change is written, after one second at
// most, and does not wait for other events.
func (l *Log) Record(kind Kind, source Source, ok bool, describe func() Event) {
	if l == nil {
		return
	}
	l.events.WithLabelValues(string(kind)).Inc()
	if !ok && !l.admits(kind, source) {
		l.suppressed(kind)
		return
	}
	event := describe()
	l.submit(kind, entry{record: event.record(kind, l.now()), source: source, change: ok})
}

// suppressed notes that an event was suppressed.
func (l *Log) suppressed(kind Kind) {
	l.suppressions.WithLabelValues(string(kind)).Inc()
	select {
	case l.counting <- struct{}{}:
	default:
	}
}

// line records a line about the log itself.
func (l *Log) line(kind Kind, attrs ...slog.Attr) {
	l.submit(kind, entry{record: l.own(kind, attrs...), change: true})
}

func (l *Log) own(kind Kind, attrs ...slog.Attr) slog.Record {
	r := slog.NewRecord(l.now(), slog.LevelInfo, message, 0)
	r.AddAttrs(slog.String("event", string(kind)))
	r.AddAttrs(attrs...)
	return r
}

func (l *Log) admits(kind Kind, source Source) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit(kind).admits(l.now(), source)
}

// limit returns the limit of a kind. mu must be held.
func (l *Log) limit(kind Kind) *limit {
	if l.limits[kind] == nil {
		l.limits[kind] = newLimit()
	}
	return l.limits[kind]
}

func (l *Log) submit(kind Kind, e entry) {
	if !e.change {
		if len(l.queue) < cap(l.queue)/2 {
			select {
			case l.queue <- e:
				return
			default:
			}
		}
		l.mu.Lock()
		l.limit(kind).suppress(l.now(), e.source)
		l.mu.Unlock()
		l.suppressed(kind)
		return
	}
	select {
	case <-l.stopped:
		l.spare(e)
		return
	default:
	}
	e.done = make(chan struct{})
	timer := time.NewTimer(l.maxWait)
	defer timer.Stop()
	select {
	case l.queue <- e:
	case <-l.stopped:
		l.spare(e)
		return
	case <-timer.C:
		l.spare(e)
		return
	}
	select {
	case <-e.done:
	case <-l.stopped:
	case <-timer.C: // it is queued, and written once the sink answers
	}
}

// spare does with a line that the sink does not take what is left to do.
func (l *Log) spare(e entry) {
	l.lost.Add(1)
	if !e.change || l.file == nil {
		l.failures.WithLabelValues(fateLost).Inc()
		return
	}
	l.failures.WithLabelValues(fateLogged).Inc()
	_ = l.logger.Handler().Handle(context.Background(), e.record) // nothing is left to try
}

// write is the writer: it alone uses the sink.
func (l *Log) write() {
	defer close(l.stopped)
	tick, ticks := time.NewTicker(tickInterval), true
	defer tick.Stop()
	for {
		if due := l.failing || l.counts(); due && !ticks {
			tick.Reset(tickInterval)
			ticks = true
		} else if !due {
			tick.Stop()
			ticks = false
		}
		select {
		case e := <-l.queue:
			l.writeEntry(e)
		case <-l.counting:
		case <-tick.C:
			l.retry()
			l.count(false)
		case <-l.stopping:
			for len(l.queue) > 0 {
				l.writeEntry(<-l.queue)
			}
			l.count(true)
			if l.file != nil {
				l.writeEntry(entry{record: l.own(stopped), change: true})
			}
			if err := l.file.close(); err != nil {
				l.logger.Warn("closing the audit log", "error", err)
			}
			return
		}
	}
}

// writeEntry writes one line.
func (l *Log) writeEntry(e entry) {
	if e.done != nil {
		defer close(e.done)
	}
	if !l.failing {
		err := l.sink.Handle(context.Background(), e.record)
		if err == nil {
			return
		}
		l.failing = true
		l.state.Set(1)
		l.complain(err)
	}
	l.spare(e)
}

// retry tries a sink that has failed. Its first line says how many are missing.
func (l *Log) retry() {
	if !l.failing {
		return
	}
	missing := l.lost.Load()
	if err := l.sink.Handle(context.Background(), l.own(resumed, slog.Int64("missing", missing))); err != nil {
		l.complain(err)
		return
	}
	l.logger.Info("the audit log is written again", "missing", missing)
	l.lost.Add(-missing)
	l.failing = false
	l.state.Set(0)
}

func (l *Log) complain(err error) {
	if now := l.now(); l.complained.IsZero() || now.Sub(l.complained) >= complainInterval {
		l.complained = now
		l.logger.Error("the audit log cannot be written; changes are logged here until it can", "error", err)
	}
}

// counts reports whether count has suppressed events to count.
func (l *Log) counts() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, limit := range l.limits {
		if limit.missing > 0 {
			return true
		}
	}
	return false
}

// count writes lines that count suppressed events. last: there will be no more.
func (l *Log) count(last bool) {
	l.mu.Lock()
	var records []slog.Record
	for _, kind := range slices.Sorted(maps.Keys(l.limits)) {
		if missing, since, by := l.limits[kind].due(l.now(), last); missing > 0 {
			records = append(records, l.own(suppressed, slog.String("of", string(kind)), slog.Int64("count", missing),
				slog.Time("since", since), List("by", by)))
		}
	}
	l.mu.Unlock()
	for _, r := range records {
		l.writeEntry(entry{record: r, change: true})
	}
}

// Close writes what is queued and closes the file. It waits a few seconds for a sink that
// does not answer.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.once.Do(func() {
		close(l.stopping)
		l.withdraw()
	})
	timer := time.NewTimer(stopWait)
	defer timer.Stop()
	select {
	case <-l.stopped:
	case <-timer.C:
		l.logger.Error("the audit log did not take its last lines in time", "lines", len(l.queue))
	}
}
