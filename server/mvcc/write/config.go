package write

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/trace"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc/keyspace"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/tso"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Config says what a Pipeline works with. All fields but Tracer and Clock are required.
type Config struct {
	Limits    Limits
	Store     sqlstore.Store
	Fence     *fence.Holder // only the pipeline may use it
	Count     *quota.Count  // of the token that Fence holds
	Reader    *read.Reader
	View      *keyspace.View
	Revisions *tso.Oracle
	Leader    Leader
	Leases    Leases
	Metrics   *Metrics
	Log       *slog.Logger
	Tracer    trace.Tracer // of writes that are part of a sampled trace; nil: off
	// Clock returns the time of a commit; nil: time.Now. It may go back, which the times of commits do not.
	Clock func() time.Time
}

// Limits bound what a Pipeline takes in. All must be at least 1.
type Limits struct {
	QueueLength   int           // most requests that wait for a batch
	QueueBytes    int           // bytes of requests that wait, beyond which only small ones may wait too
	BatchRequests int           // most requests of one commit
	BatchRows     int           // most rows of one commit, and keys that its requests name, unless one request has more
	BatchBytes    int           // most bytes of one commit, unless one request has more
	IndexCache    int           // most entries of the index cache
	TxnKeys       int           // most keys of the ranges of one transaction, see MaxTxnKeys
	TxnBytes      int           // of values that are prefetched for all transactions together, at least MaxTxnBytes
	CommitTimeout time.Duration // of one attempt to commit, and of what the commands of a batch read
}

// DefaultLimits returns the default limits.
func DefaultLimits() Limits {
	return Limits{
		QueueLength:   8192,
		QueueBytes:    128 << 20,
		BatchRequests: 256,
		BatchRows:     1024,
		BatchBytes:    4 << 20,
		IndexCache:    1 << 15,
		TxnKeys:       MaxTxnKeys,
		TxnBytes:      2 * MaxTxnBytes,
		CommitTimeout: 10 * time.Second,
	}
}

// Leader is the leadership that a Pipeline writes for.
type Leader interface {
	// VerifyLeader returns nil if no other leader can have acknowledged anything before the call.
	VerifyLeader(ctx context.Context) error
	// End ends the leadership because of cause, and returns the error of requests that were
	// not executed.
	End(cause error) error
	// Ended is closed when the leadership has ended for the reason that Lost returns.
	Ended() <-chan struct{}
	// Lost returns why the leadership ended, nil if it has not, or if this node handed it over.
	Lost() error
	// ErrNotLeader returns the error of a request that was not executed.
	ErrNotLeader() error
	// AuthRows returns the newest users and roles.
	AuthRows() *auth.Rows
	// Seen gets each value of the fence row after an attempt to commit.
	Seen(token coder.FenceToken)
	// Refused gets the error of a commit that the database has refused: it has no space, say, or takes no writes. It does
	// not get those of requests that are too large.
	Refused(err error)
	// Publish makes a durable commit visible. Its error is that of all requests in it.
	Publish(c Committed) error
}

// Committed is what a commit changed.
type Committed struct {
	Events   []*watch.Event
	Revision int64      // the newest after it
	Bytes    int64      // by how many it changed the counted rows, see quota.Count
	Auth     *auth.Rows // users and roles after it; to be in force before Events are shown
	// Then is to be run in order before the revision can be read.
	Then []func()
}

// Leases are the leases in the table, and the policies that grant some.
type Leases interface {
	// Lease returns the row of a lease as of the last commit; false if there is none.
	Lease(id int64) (coder.Lease, bool)
	// PolicyLease returns the lease for a key that is put without one, 0 if it gets none.
	// It may grant one in tx. It is called on the sequencer.
	PolicyLease(tx *Tx, key []byte) (int64, error)
}

// Metrics are the metrics of writing. They outlive a Pipeline.
type Metrics struct {
	queue, wait, commit, batchChanges             prometheus.Histogram
	commitRetries, indexMisses, assumptionsFailed prometheus.Counter
}

// NewMetrics creates the metrics on r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return promauto.With(r).NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(r).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	latency := prometheus.ExponentialBuckets(0.0001, 2, 18)
	return &Metrics{
		queue: histogram("sqlbrain_request_pipeline_duration_seconds", "Time from queueing a write to its answer.",
			latency), wait: histogram("sqlbrain_request_queue_duration_seconds",
			"Time from queueing a write to the start of its batch.", latency),
		commit: histogram("sqlbrain_commit_duration_seconds", "Time of one commit attempt, resolving included.",
			latency), batchChanges: histogram("sqlbrain_commit_changes", "Key changes in one commit.",
			prometheus.ExponentialBuckets(1, 2, 12)),
		commitRetries: counter("sqlbrain_commit_retries_total", "Commits that had to be attempted again."),
		indexMisses:   counter("sqlbrain_index_cache_misses_total", "Reads of index rows while evaluating."),
		assumptionsFailed: counter("sqlbrain_assumptions_failed_total",
			"Batches evaluated again because a key to be created was there."),
	}
}
