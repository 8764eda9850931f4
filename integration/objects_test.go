package integration

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// objectsWait bounds a run of the objects workload.
const objectsWait = 30 * time.Minute

// TestObjects takes a cluster's objects through their life, with the program's
// own benchmark: created, updated, listed in pages and at old revisions,
// watched, compacted. It compares every answer and event with what was written.
func TestObjects(t *testing.T) {
	objects := harness.Number(t, "SQLBRAIN_OBJECTS", 2000, 100_000)
	harness.ForEachEngine(t, func(t *testing.T, e harness.Engine) {
		node := harness.StartNode(t, e)
		out := harness.Run(t, objectsWait, "", harness.Sqlbrain(t), "bench", "objects",
			"--endpoints", node.Host(), "--objects", strconv.Itoa(objects), "--exclusive", "--output", "json")
		require.Zero(t, out.Code, "%s", out.Stderr)
		var report struct {
			Phases []struct {
				Name string
				Ops  []struct {
					Name              string
					Succeeded, Failed int
				}
			}
			Verification struct {
				Answers, Keys, Events, Skipped, Failed int
				Failures                               []string
			}
			Notes []string
		}
		require.NoError(t, json.Unmarshal([]byte(out.Stdout), &report))
		v := report.Verification
		require.Zero(t, v.Failed, "%v", v.Failures)
		require.Zero(t, v.Skipped)
		require.Empty(t, report.Notes)
		// Each object is written, read back and watched at least once.
		require.GreaterOrEqual(t, v.Keys, objects)
		require.GreaterOrEqual(t, v.Events, objects)
		require.NotEmpty(t, report.Phases)
		for _, p := range report.Phases {
			for _, op := range p.Ops {
				require.Zero(t, op.Failed, "%s: %s", p.Name, op.Name)
			}
		}
		t.Logf("%d objects: %d answers with %d keys and %d events compared", objects, v.Answers, v.Keys, v.Events)
	})
}
