package replicated

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// doctor returns the status of each check of `sqlbrain doctor`.
func doctor(t *testing.T, datastore string) map[string]string {
	t.Helper()
	out := harness.Run(t, wait, "", harness.Sqlbrain(t), "doctor", "--output", "json", "--datastore", datastore)
	var report struct {
		Findings []struct{ Check, Status, Detail string }
	}
	require.NoError(t, json.Unmarshal([]byte(out.Stdout), &report), out.Stderr)
	found := map[string]string{}
	for _, f := range report.Findings {
		found[f.Check] = f.Status
		if f.Status != "ok" {
			t.Logf("%s: %s: %s", f.Status, f.Check, f.Detail)
		}
	}
	return found
}
