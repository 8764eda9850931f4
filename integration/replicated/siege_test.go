package replicated

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/cluster"
	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
)

// workers is how many make requests at once.
const workers = 8

// timed is a siege that notes when writes were acknowledged.
type timed struct {
	*siege.Siege

	acked sync.Mutex
	times []time.Time // in order
	stop  context.CancelFunc
	done  sync.WaitGroup
}

func besiege(t *testing.T, c *cluster.Cluster) *timed {
	t.Helper()
	s := &timed{Siege: siege.Lay(t, c, workers, wait)}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	t.Cleanup(stop)
	s.done.Go(func() { s.observe(ctx) })
	return s
}

// observe notes when acknowledged writes were.
func (s *timed) observe(ctx context.Context) {
	for n := s.Recorder.Acked() + 1; s.Recorder.AwaitAcked(ctx, n) == nil; n = s.Recorder.Acked() + 1 {
		s.acked.Lock()
		s.times = append(s.times, time.Now())
		s.acked.Unlock()
	}
}

// gap is the longest time without an acknowledged write since a moment.
func (s *timed) gap(since time.Time) (longest time.Duration) {
	s.acked.Lock()
	defer s.acked.Unlock()
	at, _ := slices.BinarySearchFunc(s.times, since, func(t, s time.Time) int { return t.Compare(s) })
	for i := max(1, at); i < len(s.times); i++ {
		longest = max(longest, s.times[i].Sub(s.times[i-1]))
	}
	return longest
}

// end is End, with the end of the notes.
func (s *timed) end() {
	s.Siege.End()
	s.stop()
	s.done.Wait()
}

// report logs the median and the longest of the gaps.
func report(t *testing.T, what string, gaps []time.Duration) {
	t.Helper()
	slices.Sort(gaps)
	t.Logf("%s: %s (median), %s (longest), %d rounds", what,
		gaps[len(gaps)/2].Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond), len(gaps))
}

func nodesOn(t *testing.T, datastore func(i int) string) *cluster.Cluster {
	t.Helper()
	harness.NeedsDatabase(t)
	return cluster.Start(t, cluster.Config{Datastore: datastore})
}
