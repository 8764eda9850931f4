package robustness

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plan is the faults of a round, one step after the other. In between,
// everything heals.
type plan []step

// step is faults that begin together, and end together after hold.
type step struct {
	faults []fault
	hold   time.Duration
}

// fault is something that happens to a target: leader or follower, which are
// resolved when the step begins, all nodes, or the database.
type fault struct{ kind, target string }

const (
	leader   = "leader"
	follower = "follower"
	everyone = "all"
	database = "database"
)

// String and parsePlan are the form that is printed and replayed:
// kill@leader+delay-peers@follower/800ms pause@database/1s
func (p plan) String() string {
	var steps []string
	for _, s := range p {
		var faults []string
		for _, f := range s.faults {
			faults = append(faults, f.kind+"@"+f.target)
		}
		steps = append(steps, strings.Join(faults, "+")+"/"+s.hold.String())
	}
	return strings.Join(steps, " ")
}

func parsePlan(text string) (p plan, err error) {
	for _, t := range strings.Fields(text) {
		faults, hold, ok := strings.Cut(t, "/")
		if !ok {
			return nil, fmt.Errorf("no duration in %q", t)
		}
		var s step
		if s.hold, err = time.ParseDuration(hold); err != nil {
			return nil, err
		}
		for f := range strings.SplitSeq(faults, "+") {
			kind, target, _ := strings.Cut(f, "@")
			if kinds[kind].begin == nil || !slices.Contains([]string{leader, follower, everyone, database}, target) {
				return nil, fmt.Errorf("no fault %q", f)
			}
			s.faults = append(s.faults, fault{kind, target})
		}
		p = append(p, s)
	}
	return p, nil
}

// faultsOf lists what may happen to a target. More often named, more often drawn.
func faultsOf(target string, hasDatabase bool) []string {
	switch target {
	case everyone:
		return []string{"kill", "delay-peers"}
	case database:
		return []string{"kill", "pause"}
	}
	kinds := []string{"kill", "kill", "stop", "pause", "cut-peers", "swallow-peers", "swallow-from", "delay-peers",
		"reset-peers"}
	if hasDatabase {
		kinds = append(kinds, "cut-database", "swallow-database", "delay-database", "isolate", "reset-database")
	}
	if target == leader {
		kinds = append(kinds, "move")
	}
	return kinds
}

const (
	shortestHold = 200 * time.Millisecond
	// longestHold is longer than any lease of a leader.
	longestHold = 3500 * time.Millisecond
)

// draw makes a plan. Its first steps are about the leader, which matters most.
func draw(rnd *rand.Rand, steps int, hasDatabase, ownsDatabase bool) plan {
	targets := []string{leader, leader, leader, follower, follower, everyone}
	if ownsDatabase {
		targets = append(targets, database)
	}
	one := func(target string) fault {
		kinds := faultsOf(target, hasDatabase)
		return fault{kinds[rnd.IntN(len(kinds))], target}
	}
	var p plan
	for i := range steps {
		s := step{hold: (shortestHold + time.Duration(rnd.Int64N(int64(longestHold-shortestHold)))).Round(
			10 * time.Millisecond)}
		target := targets[rnd.IntN(len(targets))]
		if i == 0 {
			target = leader
		}
		s.faults = []fault{one(target)}
		if target == leader && rnd.IntN(3) == 0 {
			s.faults = append(s.faults, one(follower))
		}
		p = append(p, s)
	}
	return p
}

func TestPlanIsReplayable(t *testing.T) {
	for seed := range uint64(200) {
		p := draw(rand.New(rand.NewPCG(seed, 0)), 6, true, true)
		require.Equal(t, p, draw(rand.New(rand.NewPCG(seed, 0)), 6, true, true))
		again, err := parsePlan(p.String())
		require.NoError(t, err, "%s", p)
		require.Equal(t, p, again)
	}
	_, err := parsePlan("explode@leader/1s")
	require.Error(t, err)
}
