package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

// models are the configurations that are searched exhaustively. reached are the marks of reach() that must be
// reachable, so that no property holds because nothing happens.
var models = []struct {
	name    string
	file    string
	defines []string
	reached []int
}{
	{"commits", "fence.pml", []string{"TERMS=3", "BATCHES=3", "RAISES=2", "RESTARTS=2", "DUPLICATES"}, []int{1, 2, 3, 4, 5, 9, 10}},
	{"leases", "fence.pml", []string{"TERMS=3", "BATCHES=1", "RAISES=0", "TIMED"}, []int{1, 2, 6}},
	{"slow clocks", "fence.pml", []string{"TERMS=2", "BATCHES=1", "RAISES=0", "TIMED", "DRIFT"}, []int{1, 6}},
	{"three nodes", "fence.pml", []string{"TERMS=2", "BATCHES=1", "RAISES=0", "TIMED", "NODES=3", "LEADERS=2", "FOLLOWERS"}, []int{1, 2, 6, 7, 8}},
	{"loss", "loss.pml", []string{"TERMS=3", "CHANGES=5"}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}},
	{"election", "lock.pml", []string{"GRANTS=2", "ENDS"}, []int{1, 2, 4, 5, 8}},
	{"feeds", "lock.pml", []string{"GRANTS=2", "FEEDS"}, []int{1, 2, 3, 4, 5, 8, 9}},
	{"read-only database", "lock.pml", []string{"GRANTS=2", "READ_ONLY"}, []int{1, 2, 4, 6, 7}},
	{"client leases", "lease.pml", []string{"TERMS=3"}, []int{1, 2, 3, 4}},
	{"followers", "fence.pml", []string{"TERMS=1", "BATCHES=2", "RAISES=0", "TIMED", "LEADERS=1", "FOLLOWERS", "RESTARTS=1"}, []int{7, 8}},
}

// safeguards are what the protocol does for its properties. Each model is one in which it is missing.
var safeguards = []struct {
	name    string
	file    string
	defines []string
}{
	{"NO_FENCE_CAS", "fence.pml", []string{"TERMS=2", "BATCHES=2", "RAISES=1"}},
	{"NO_RESOLVE", "fence.pml", []string{"TERMS=2", "BATCHES=2", "RAISES=1"}},
	{"NO_RAISE", "fence.pml", []string{"TERMS=2", "BATCHES=2", "RAISES=1"}},
	{"NO_ATTEMPT_RAISE", "fence.pml", []string{"TERMS=2", "BATCHES=2", "RAISES=1"}},
	{"NO_TERM", "fence.pml", []string{"TERMS=2", "BATCHES=2", "RAISES=1"}},
	{"NO_NEW_LEADER_WAIT", "fence.pml", []string{"TERMS=2", "BATCHES=1", "RAISES=0", "TIMED"}},
	{"LEASE_FROM_END", "fence.pml", []string{"TERMS=2", "BATCHES=1", "RAISES=0", "TIMED"}},
	{"SHORT_NEW_LEADER_WAIT", "fence.pml", []string{"TERMS=2", "BATCHES=1", "RAISES=0", "TIMED", "DRIFT"}},
	{"RESIGN_BEFORE_STOP", "fence.pml", []string{"TERMS=2", "BATCHES=1", "RAISES=0", "TIMED"}},
	{"CATCH_UP_BEFORE_WAIT", "fence.pml", []string{"TERMS=2", "BATCHES=1", "RAISES=0", "TIMED"}},
	{"LEASE_CLOCK_STOPS_IN_SUSPENSION", "fence.pml", []string{"TERMS=2", "BATCHES=1", "RAISES=0", "TIMED"}},
	{"FOLLOWER_SHOWS_AT_ONCE", "fence.pml", []string{"TERMS=1", "BATCHES=1", "RAISES=0", "TIMED", "LEADERS=1", "FOLLOWERS"}},
	{"FOLLOWER_DOES_NOT_WAIT", "fence.pml", []string{"TERMS=1", "BATCHES=1", "RAISES=0", "TIMED", "LEADERS=1", "FOLLOWERS"}},
	{"LOOK_DOES_NOT_AWAIT", "fence.pml", []string{"TERMS=1", "BATCHES=1", "RAISES=0", "TIMED", "LEADERS=1", "FOLLOWERS"}},
	{"NO_LOSS_CHECK", "loss.pml", []string{"TERMS=2", "CHANGES=4"}},
	{"NO_LOST_ROW", "loss.pml", []string{"TERMS=2", "CHANGES=4"}},
	{"NO_CONTENT_CHECK", "loss.pml", []string{"TERMS=2", "CHANGES=4"}},
	{"RECORD_NOT_RAISED", "loss.pml", []string{"TERMS=2", "CHANGES=4"}},
	{"NO_PROOF_BY_CONTENT", "loss.pml", []string{"TERMS=3", "CHANGES=5"}},
	{"NO_LAST_COMPARISON", "loss.pml", []string{"TERMS=2", "CHANGES=4"}},
	{"CHALLENGE_NOT_ANSWERED", "lock.pml", []string{"GRANTS=2"}},
	{"ANSWER_NOT_COMPARED", "lock.pml", []string{"GRANTS=2"}},
	{"CLOCK_COUNTS_OUTAGE", "lock.pml", []string{"GRANTS=2"}},
	{"RELEASE_UNCONDITIONAL", "lock.pml", []string{"GRANTS=2", "ENDS"}},
	{"SPENT_NOT_REMEMBERED", "lock.pml", []string{"GRANTS=2", "ENDS"}},
	{"NO_NEW_CHALLENGE", "lock.pml", []string{"GRANTS=2", "READ_ONLY"}},
	{"FEED_END_NOT_NOTICED", "lock.pml", []string{"GRANTS=2", "FEEDS"}},
	{"SHORT_WAIT_WITHOUT_FEED", "lock.pml", []string{"GRANTS=2"}},
	{"WAIT_CONTINUES", "lock.pml", []string{"GRANTS=2", "FEEDS"}},
	{"GRANT_NOT_COMPARED", "lock.pml", []string{"GRANTS=3", "ENDS"}},
	{"CLOCKS_START_AT_LOAD", "lease.pml", []string{"TERMS=2"}},
	{"LOAD_BEFORE_TAKE", "lease.pml", []string{"TERMS=2"}},
	{"NO_CONFIRM", "lease.pml", []string{"TERMS=2"}},
	{"NO_FENCE_CAS", "lease.pml", []string{"TERMS=2"}},
	{"ROUND_DOWN", "lease.pml", []string{"TERMS=2"}},
	{"RENEWAL_WITHOUT_COMMIT", "lease.pml", []string{"TERMS=2"}},
	{"PERSISTED_NOT_LOWERED", "lease.pml", []string{"TERMS=2"}},
	{"CHECKPOINT_COMPUTED_WHEN_DUE", "lease.pml", []string{"TERMS=2"}},
	{"EXPIRED_LEASE_IS_RENEWED", "lease.pml", []string{"TERMS=2"}},
}

// The properties hold in every reachable state.
func TestProperties(t *testing.T) {
	enginetest.Need(t, findTools(), ErrNoTools)
	for _, m := range models {
		t.Run(m.name, func(t *testing.T) {
			c := check(t, m.file, exhaustive, m.defines)
			if c.errors != 0 {
				t.Fatalf("a property is violated:\n%s", c.output)
			}
			for _, mark := range m.reached {
				if strings.Contains(c.output, fmt.Sprintf("\"assert(%d)\"", mark)) {
					t.Errorf("no state reaches the mark %d", mark)
				}
			}
			t.Logf("%d states", c.states)
		})
	}
}

// Without a safeguard the checker finds a counterexample.
func TestSafeguardsAreNeeded(t *testing.T) {
	enginetest.Need(t, findTools(), ErrNoTools)
	for _, s := range safeguards {
		t.Run(strings.TrimSuffix(s.file, ".pml")+"/"+s.name, func(t *testing.T) {
			c := check(t, s.file, quick, append(slices.Clone(s.defines), s.name))
			if c.errors == 0 {
				t.Fatalf("no counterexample in %d states:\n%s", c.states, c.output)
			}
			t.Logf("a counterexample of %d statements after %d states", c.steps, c.states)
		})
	}
}
