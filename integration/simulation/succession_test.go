package simulation

import (
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// TestLeadersThatAreReplacedAreJudged replaces a leader with and without a reason.
func TestLeadersThatAreReplacedAreJudged(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault disturbance
		wrong bool
	}{
		{"of the leader", disturbance{Fault{Kind: Pause}, "n1", time.Second, 2 * time.Second}, false},
		{"of its successor", disturbance{Fault{Kind: Crash}, "n2", time.Second, 2 * time.Second}, false},
		{"of its link to the database", disturbance{Fault{Kind: PartitionTo, Peer: databaseHost}, "n1", time.Second, 2 * time.Second}, false},
		{"of its link to a node", disturbance{Fault{Kind: Partition, Peer: "n2"}, "n1", time.Second, 2 * time.Second}, true},
		{"of its connections", disturbance{Fault{Kind: Refuse}, "n1", time.Second, 2 * time.Second}, true},
		{"a move", disturbance{Fault{Kind: Move}, "n3", time.Second, 2 * time.Second}, false},
		{"of another node", disturbance{Fault{Kind: Pause}, "n3", time.Second, 2 * time.Second}, true},
		{"long before", disturbance{Fault{Kind: Pause}, "n1", 0, 3*time.Second - leaderPatience - 1}, true},
		{"afterwards", disturbance{Fault{Kind: Pause}, "n1", 4 * time.Second, 5 * time.Second}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(Plan{}, memstore.New())
			w.steps = []steptrace.Step{{Node: "n1", Kind: steptrace.Lead, At: time.Second},
				{Node: "n2", Kind: steptrace.Lead, At: 3 * time.Second}}
			w.disturbances = []disturbance{c.fault}
			w.judgeLeaders()
			if got := len(w.violations) > 0; got != c.wrong {
				t.Errorf("found %v", w.violations)
			}
		})
	}
}

// TestLeadersThatAreCalledGoneAreJudged lets a node say that the leader is gone, with and without a fault.
func TestLeadersThatAreCalledGoneAreJudged(t *testing.T) {
	for kind, wrong := range map[Kind]bool{Crash: false, Refuse: true} {
		w := newWorld(Plan{}, memstore.New())
		w.condemned = []time.Duration{2 * time.Second}
		w.disturbances = []disturbance{{Fault{Kind: kind}, "n1", time.Second, 3 * time.Second}}
		w.judgeLeaders()
		if got := len(w.violations) > 0; got != wrong {
			t.Errorf("%s: found %v", kind, w.violations)
		}
	}
}

// TestLeadersThatAreNotReplacedAreJudged leaves a leader that cannot lead without a successor.
func TestLeadersThatAreNotReplacedAreJudged(t *testing.T) {
	long := disturbance{Fault{Kind: PowerOff}, "n1", 2 * time.Second, 20 * time.Second}
	for _, c := range []struct {
		name  string
		next  time.Duration // when n2 leads; 0: never
		fault disturbance
		other disturbance
		wrong bool
	}{
		{"soon", 5 * time.Second, long, disturbance{}, false},
		{"late", 7 * time.Second, long, disturbance{}, true},
		{"never", 0, long, disturbance{}, true},
		{"the fault is short", 0, disturbance{Fault{Kind: PowerOff}, "n1", 2 * time.Second, 5 * time.Second}, disturbance{}, false},
		{"of another node", 0, disturbance{Fault{Kind: PowerOff}, "n3", 2 * time.Second, 20 * time.Second}, disturbance{}, false},
		{"of a link", 0, disturbance{Fault{Kind: Partition, Peer: "n3"}, "n1", 2 * time.Second, 20 * time.Second}, disturbance{}, false},
		{"another fault", 0, long, disturbance{Fault{Kind: Outage}, databaseHost, 3 * time.Second, 4 * time.Second}, false},
		{"it cannot write", 15 * time.Second, disturbance{Fault{Kind: ReadOnly}, "n1", 2 * time.Second, 30 * time.Second}, disturbance{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(Plan{}, memstore.New())
			w.steps = []steptrace.Step{{Node: "n1", Kind: steptrace.Lead, At: time.Second}}
			if c.next > 0 {
				w.steps = append(w.steps, steptrace.Step{Node: "n2", Kind: steptrace.Lead, At: c.next})
			}
			w.disturbances = []disturbance{c.fault}
			if c.other != (disturbance{}) {
				w.disturbances = append(w.disturbances, c.other)
			}
			w.judgeSuccession()
			if got := len(w.violations) > 0; got != c.wrong {
				t.Errorf("found %v", w.violations)
			}
		})
	}
}
