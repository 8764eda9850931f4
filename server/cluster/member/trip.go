package member

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// trips measures the round trip to the database by the last statements. One goroutine observes.
type trips struct {
	recent            [16]time.Duration
	n                 int
	shortest, longest atomic.Int64 // of these; longest but one, because a single slow statement says nothing of the next
}

// observe records how long a statement took.
func (t *trips) observe(d time.Duration) {
	t.recent[t.n%len(t.recent)] = d
	t.n++
	recent := slices.Sorted(slices.Values(t.recent[:min(t.n, len(t.recent))]))
	t.shortest.Store(int64(recent[0]))
	t.longest.Store(int64(recent[max(0, len(recent)-2)]))
}

// bound returns d, or how long a statement on a new connection takes if that is longer. A database that has too much
// to do may look far away, so the shortest round trip counts, and there is a limit.
func (t *trips) bound(d time.Duration) time.Duration {
	return max(d, min(timing.ConnectTrips*time.Duration(t.shortest.Load()), timing.FarTimeout))
}

// pause returns how long an answer may take on its way if the answering process has that round trip, or this one has
// a longer one. A long one counts, because the next one may take as long. The limit bounds the wait for a dead leader.
func (t *trips) pause(theirs time.Duration) time.Duration {
	return min(timing.AnswerTrips*max(time.Duration(t.longest.Load()), theirs), timing.LongestPause)
}
