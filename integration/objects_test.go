package integration

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
)

// objectsWait bounds a run of the objects workload.
const objectsWait = 30 * time.Minute

// TestObjects takes a cluster's objects through their life: created, updated, listed in pages and at old revisions,
// watched, compacted. It compares every answer and event with what was written.
func TestObjects(t *testing.T) {
	objects := number(2000, 100_000)
	harness.ForEachEngine(t, func(t *testing.T, e harness.Engine) {
		node := harness.StartNode(t, e)
		ctx, cancel := context.WithTimeout(t.Context(), objectsWait)
		defer cancel()
		cfg := workload.DefaultConfig()
		cfg.Workload, cfg.Endpoints, cfg.Objects, cfg.Exclusive = "objects", []string{node.Host()}, objects, true
		report, err := workload.Run(ctx, cfg)
		require.NoError(t, err)
		v := report.Verification
		require.Zero(t, v.Skipped)
		require.Empty(t, report.Notes)
		// Each object is written, read back and watched at least once.
		require.GreaterOrEqual(t, v.Keys, int64(objects))
		require.GreaterOrEqual(t, v.Events, int64(objects))
		require.NotEmpty(t, report.Phases)
		for _, p := range report.Phases {
			for _, op := range p.Ops {
				require.Zero(t, op.Failed, "%s: %s", p.Name, op.Name)
			}
		}
		t.Logf("%d objects: %d answers with %d keys and %d events compared", objects, v.Answers, v.Keys, v.Events)
	})
}
