package watch

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config configures a Hub. All numbers must be above zero; DefaultConfig has usable ones.
type Config struct {
	RingEvents  int // most events kept in the ring
	RingBytes   int // most bytes of events kept in the ring
	QueueEvents int // most events queued for one watcher before it counts as slow
	QueueBytes  int // the same in bytes; one revision always fits a half empty queue
	// bytes of events in all queues, beyond which each may have leastQueueBytes only
	QueuedBytes      int
	ProgressInterval time.Duration         // between progress notices for watchers that ask for them
	Logger           *slog.Logger          // nil: discards
	Registerer       prometheus.Registerer // gets the metrics; they must not be in it yet. nil: none
}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config {
	return Config{
		RingEvents: 1 << 16, RingBytes: 8 << 20,
		QueueEvents: 1024, QueueBytes: 4 << 20, QueuedBytes: 32 << 20,
		ProgressInterval: 10 * time.Minute,
	}
}
