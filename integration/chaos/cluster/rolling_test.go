package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
)

// workers is how many make requests at once.
const workers = 12

// TestRollingRestart restarts all nodes, one after the other, under load of
// clients that know all of them: none of their requests fails, every answer is
// correct, and their watches miss nothing.
func TestRollingRestart(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Patient: true})
	s := siege.Lay(t, c, workers, wait)
	for range harness.UsualOrLong(1, 20) {
		for n := range c.Size() {
			s.Progress(100)
			c.Stop(n)
			s.Progress(100)
			c.Start(n)
		}
	}
	s.Progress(100)
	s.End()
	if harness.TargetIsEtcd() {
		return // where writes under way when the leader hands over may time out
	}
	require.Empty(t, s.Load.Errors(), "requests failed that the client was not to see: %s", s.Load.Describe())
}
