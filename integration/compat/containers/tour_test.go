package containers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
)

const tourWait = 10 * time.Minute

// tour has clients do what they do with the built program, over crashes and a compaction, and asks doctor.
func tour(t *testing.T, datastore string) {
	node := harness.StartNodeOn(t, datastore)
	s := siege.OfNode(t, node)
	crash := func() { node.Kill(); node.Start() }
	s.Under(crash)
	s.UnderCompaction(crash)
	doctor := harness.Run(t, tourWait, "", harness.Sqlbrain(t), "doctor", "--datastore", datastore)
	require.Zero(t, doctor.Code, "%s%s", doctor.Stdout, doctor.Stderr)
	t.Logf("doctor:\n%s", doctor.Stdout)
}
