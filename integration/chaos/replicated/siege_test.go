package replicated

import (
	"slices"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// workers is how many make requests at once.
const workers = 8

// report logs the median and the longest of the gaps.
func report(t *testing.T, what string, gaps []time.Duration) {
	t.Helper()
	slices.Sort(gaps)
	t.Logf("%s: %s (median), %s (longest), %d rounds", what,
		gaps[len(gaps)/2].Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond), len(gaps))
}

func nodesOn(t *testing.T, datastore func(i int) string) *harness.Cluster {
	t.Helper()
	harness.NeedsDatabase(t)
	return harness.StartCluster(t, harness.ClusterConfig{Datastore: datastore})
}
