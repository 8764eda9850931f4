package compact

import (
	"context"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// The modes of auto-compaction; an empty mode is off.
const (
	// Periodic keeps the history of a period of time.
	Periodic = "periodic"
	// ByRevision keeps a number of revisions.
	ByRevision = "revision"
)

const (
	// revisionInterval is how often the mode ByRevision compacts, as in etcd.
	revisionInterval = 5 * time.Minute
	// maxPeriod is the longest time between two periodic compactions, as in etcd.
	maxPeriod = time.Hour
	// samplesPerPeriod is how often in a period the mode Periodic notes the revision.
	samplesPerPeriod = 10
)

// Auto says when a leader compacts by itself, as etcd does.
type Auto struct {
	Mode      string
	Retention time.Duration // of the mode Periodic; 0 is off
	Revisions int64         // of the mode ByRevision; 0 is off
	Keep      int64         // the mode Periodic leaves at least so many revisions
}

// Run compacts until ctx ends. current returns the newest revision. compact compacts to a
// revision, and reports whether that, or more, is now compacted.
func (a Auto) Run(ctx context.Context, current func() int64, compact func(ctx context.Context, rev int64) bool) {
	switch {
	case a.Mode == Periodic && a.Retention > 0:
		a.periodically(ctx, current, compact)
	case a.Mode == ByRevision && a.Revisions > 0:
		a.byRevision(ctx, current, compact)
	}
}

// periodically compacts, once an hour or once a retention if that is shorter, to the
// revision that was current a retention ago.
func (a Auto) periodically(ctx context.Context, current func() int64, compact func(context.Context, int64) bool) {
	interval := max(min(a.Retention, maxPeriod)/samplesPerPeriod, time.Millisecond)
	keep := int(a.Retention/interval) + 1
	var samples []int64 // the newest last
	tick := time.NewTicker(interval)
	defer tick.Stop()
	sinceCompaction := 0
	for {
		if samples = append(samples, current()); len(samples) > keep {
			samples = samples[1:]
		}
		sinceCompaction++
		if rev := min(samples[0], samples[len(samples)-1]-a.Keep); len(samples) == keep &&
			sinceCompaction > samplesPerPeriod &&
			rev > 0 && compact(ctx, rev) {
			sinceCompaction = 1
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (a Auto) byRevision(ctx context.Context, current func() int64, compact func(context.Context, int64) bool) {
	for range retry.Every(ctx, revisionInterval) {
		if rev := current() - a.Revisions; rev > 0 {
			compact(ctx, rev)
		}
	}
}
