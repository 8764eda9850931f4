package replica

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
)

// recorded has the steps that two nodes record.
type recorded struct {
	mu    sync.Mutex
	steps []steptrace.Step
}

func (r *recorded) of(node string) *steptrace.Trace {
	start := time.Now()
	return steptrace.New(node, func() time.Duration { return time.Since(start) }, func(s steptrace.Step) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.steps = append(r.steps, s)
	})
}

// without returns the kinds of the steps of a node so far, except those that depend on time, and forgets all.
func (r *recorded) without(node string, kinds ...steptrace.Kind) (got []steptrace.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.steps {
		if s.Node == node && !slices.Contains(kinds, s.Kind) {
			got = append(got, s.Kind)
		}
	}
	r.steps = nil
	return got
}

func TestStepsOfANode(t *testing.T) {
	var r recorded
	p := newPair(t, newStore(t), func(c *Config) { c.Trace = r.of(c.Name) })
	requireKinds := func(node string, want ...steptrace.Kind) {
		t.Helper()
		// A leader looks at the fence row every second, and when its read lease is over.
		if got := r.without(node, steptrace.Verify); !slices.Equal(got, want) {
			t.Errorf("%s: steps %v, want %v", node, got, want)
		}
	}
	requireKinds("n1", steptrace.Open, steptrace.Show, steptrace.Shown)

	p.lead(0)
	requireKinds("n0", steptrace.Take, steptrace.Answer, steptrace.Lead)

	mustTxn(t, p.nodes[0], put("k", "v"))
	requireKinds("n0", steptrace.Commit, steptrace.Answer, steptrace.Show, steptrace.Shown)

	mustRange(t, p.nodes[0], &mvcc.RangeRequest{KeyRange: all()})
	requireKinds("n0", steptrace.Read)

	mustCatchUp(t, p.nodes[1])
	requireKinds("n1", steptrace.Find, steptrace.Show, steptrace.Shown)
	mustRange(t, p.nodes[1], &mvcc.RangeRequest{KeyRange: all()})
	requireKinds("n1", steptrace.Read)

	p.mustResign(0)
	requireKinds("n0", steptrace.Resign)
}
