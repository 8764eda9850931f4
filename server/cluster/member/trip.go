package member

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// trips measures the round trip to the database: the shortest of the last statements. One goroutine observes.
type trips struct {
	recent [16]time.Duration
	n      int
	least  atomic.Int64
}

// observe takes in how long a statement took.
func (t *trips) observe(d time.Duration) {
	t.recent[t.n%len(t.recent)] = d
	t.n++
	t.least.Store(int64(slices.Min(t.recent[:min(t.n, len(t.recent))])))
}

// atLeast returns d, or how long a statement on a new connection takes if that is longer. A database that has too much
// to do may look far away, so most is a bound.
func (t *trips) atLeast(d, most time.Duration) time.Duration {
	return max(d, min(timing.ConnectTrips*time.Duration(t.least.Load()), most))
}

// pause is the least time between two challenges: that of AnswerTrips round trips. It is bounded for the same reason.
func (t *trips) pause() time.Duration {
	return min(timing.AnswerTrips*time.Duration(t.least.Load()), timing.LongestPause)
}
