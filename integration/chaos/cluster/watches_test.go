package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// TestManyWatches spreads watches of single keys over all nodes, and next to them watches of everything, while keys are
// written at a steady rate: each watch gets every write of its keys, once, in order, with the revision and the previous
// version.
func TestManyWatches(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Patient: true})
	watches := harness.UsualOrLong(500, 10_000)
	one := workload.DefaultConfig()
	one.Workload, one.Prefix, one.Watchers, one.WatchEach, one.Keys = "watch-latency", "/one", watches, true, watches/10
	all := workload.DefaultConfig()
	all.Workload, all.Prefix, all.Watchers, all.Keys = "churn", "/all", 2*c.Size(), watches
	var group errgroup.Group
	for _, cfg := range []workload.Config{one, all} {
		cfg.Endpoints, cfg.Clients, cfg.Conns, cfg.ValueSize = c.Endpoints(), 32, 10*c.Size(), 100
		cfg.RequestTimeout = eventually.Deadline
		cfg.Rate, cfg.Duration = float64(harness.UsualOrLong(250, 500)), time.Duration(harness.UsualOrLong(5, 60))*time.Second
		group.Go(func() error {
			report, err := workload.Run(t.Context(), cfg)
			if err != nil {
				return err
			}
			v := report.Verification
			t.Logf("%s: %d events of %d watches were as they must be", cfg.Workload, v.Events, cfg.Watchers)
			if _, failed := report.Requests(); failed > 0 || v.Lost > 0 || v.Skipped > 0 || v.Events == 0 {
				err = fmt.Errorf("%s: nothing may fail here: %+v, %+v", cfg.Workload, v, report.Phases)
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
}
