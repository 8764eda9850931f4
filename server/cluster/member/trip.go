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

func (t *trips) shortest() time.Duration { return time.Duration(t.least.Load()) }

// bound returns d, or how long a statement on a new connection takes if that is longer. A database that has too much
// to do may look far away, so there is a limit.
func (t *trips) bound(d time.Duration) time.Duration {
	return max(d, min(timing.ConnectTrips*t.shortest(), timing.FarTimeout))
}

// pause returns how long an answer may take on its way if the answering process has that round trip, or this one has
// a longer one. It is bounded for the same reason.
func (t *trips) pause(theirs time.Duration) time.Duration {
	return min(timing.AnswerTrips*max(t.shortest(), theirs), timing.LongestPause)
}
