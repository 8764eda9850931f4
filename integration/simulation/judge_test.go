package simulation

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// simulate is Run in a world that change has changed.
func simulate(t *testing.T, p Plan, change func(*machine)) (violations string) {
	synctest.Test(t, func(*testing.T) {
		w := newWorld(p, memstore.New())
		for _, name := range nodes {
			change(w.machines[name])
		}
		w.run()
		violations = strings.Join(w.violations, "\n")
	})
	return violations
}

// TestLeasesThatEndEarlyAreNoticed runs the clocks of leases twice as fast as the judges allow for.
func TestLeasesThatEndEarlyAreNoticed(t *testing.T) {
	p := NewPlan(1)
	p.Faults, p.Duration, p.Workload.Leases = nil, 10*time.Second, 3
	if v := simulate(t, p, func(m *machine) { m.rate = 2 }); !strings.Contains(v, "was deleted at") {
		t.Errorf("not noticed: %q", v)
	}
}

// TestReadLeaseThatOutlivesSuspensionIsNoticed measures read leases by a clock that stands still
// while the leader is suspended and another node leads.
func TestReadLeaseThatOutlivesSuspensionIsNoticed(t *testing.T) {
	const most = 60
	for seed := range uint64(most) {
		p := NewPlan(seed)
		p.Duration, p.Workload = 5*time.Second, Workload{Clients: 8, Keys: 5, Think: 20 * time.Millisecond}
		p.Faults = []Fault{{At: time.Second, For: 3500 * time.Millisecond, Kind: Suspend, Host: Leader, Seed: seed}}
		v := simulate(t, p, func(m *machine) { m.bootStops = true })
		// Requests that change nothing are answered like reads.
		if strings.Contains(v, "a read answered at revision") || strings.Contains(v, "answered from the past") {
			t.Logf("noticed with seed %d", seed)
			return
		}
		// Other seeds show only other consequences: wrong steps of the node, refused revisions that the new leader
		// has, writes evaluated on old rows.
		t.Logf("seed %d: %.200s", seed, v)
	}
	t.Errorf("not noticed in %d seeds", most)
}
