package simulation

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/tidbsim"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestTiDB simulates seeds over a simulated TiDB. Its statements, connections and commits
// fail by themselves, in place of the plan's failing statements.
func TestTiDB(t *testing.T) {
	first, count := seeds(t, 5, 200)
	for seed := first; seed < first+count; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			var cluster *tidbsim.Cluster
			p := NewPlan(seed)
			p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { return f.Kind == Statements })
			r := RunOn(t, p, func() sqlstore.Store {
				cluster = tidbsim.New(tidbsim.Config{Seed: seed, Latency: time.Millisecond, LateCommit: time.Second})
				s, err := cluster.Open(context.Background(), sqlstore.Options{})
				if err != nil {
					t.Fatal(err)
				}
				cluster.SetFaults(tidbsim.AllFaults(0.004))
				time.AfterFunc(p.Duration, func() { cluster.SetFaults(nil) })
				return s
			})
			t.Logf("faults of TiDB: %v", cluster.Struck())
			report(t, p, r)
		})
	}
}
