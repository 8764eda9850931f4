package replica

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Config configures a Replica. DefaultConfig has usable numbers; zero means zero.
type Config struct {
	Logger         *slog.Logger  // nil: slog's default
	Name           string        // member name
	Exclusive      bool          // no other process can use the store: a leader need not confirm that it leads
	ConfirmReads   bool          // look at the fence row for every linearizable read, instead of using the read lease
	Leadership     Leadership    // finds the leader; nil: no other node can lead
	CommitFailed   func()        // called when a commit of the leader was refused, or is in doubt; nil: nothing is
	QuotaBytes     int64         // space quota; 0: none
	RequestTimeout time.Duration // bound on a request
	MinLeaseTTL    int64         // seconds
	Write          write.Limits
	RecordCache    int // most bytes of the key space in memory; 0: off
	TTLPolicies    []lease.Policy
	TokenTTL       time.Duration // how long an unused token stays valid
	// Leading, if not nil, is called when the node leads; ctx ends with the leadership. It must return then.
	Leading func(ctx context.Context)
	// Handover bounds each step of a voluntary stop of a leader: the checkpoints of leases, the
	// current commit, and the resignation.
	Handover time.Duration
	// CountSpanKeys and CountChanges are those of keyspace.Config, which tests lower; 0: its own.
	CountSpanKeys, CountChanges int
	// Tests lower these, see compact.Config and read.MaxSorted.
	countsKeys      int64
	maxSortedStream int
	compactDeadline time.Duration

	// FenceClock is the clock of the read lease, see fence.NewReadLease; LeaseClock that of
	// clients' leases, see lease.Config; CommitClock that of commits, see write.Config. nil: the system's.
	FenceClock  func() time.Duration
	LeaseClock  func() time.Time
	CommitClock func() time.Time

	AutoCompaction compact.Auto
	Watch          watch.Config
	Registerer     prometheus.Registerer // nil: metrics are kept, not registered
	Tracer         trace.Tracer          // of writes that are part of a sampled trace; nil: off
	Trace          *steptrace.Trace      // of the steps of the protocol; nil: off
}

// DefaultConfig returns the default configuration. A setting that etcd has too has etcd's
// default.
func DefaultConfig() Config {
	return Config{
		Name:            "default",
		RequestTimeout:  7 * time.Second,
		MinLeaseTTL:     2,
		Write:           write.DefaultLimits(),
		RecordCache:     24 << 20,
		TokenTTL:        300 * time.Second,
		Handover:        timing.Handover,
		AutoCompaction:  compact.Auto{Mode: compact.Periodic},
		Watch:           watch.DefaultConfig(),
		countsKeys:      countsKeys,
		maxSortedStream: read.MaxSorted,
		compactDeadline: compact.DefaultPatience,
	}
}
