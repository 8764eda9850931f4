package robustness

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/simulation/model"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// newReplay returns the model that validates the steps that the nodes of a round record. It is nil, and nothing is
// recorded, for etcd and without Spin.
func newReplay(t *testing.T) *model.Replay {
	t.Helper()
	if harness.TargetIsEtcd() {
		return nil
	}
	replay, err := model.NewReplay(t.Context(), t.TempDir(), model.ReadLease)
	if errors.Is(err, model.ErrNoTools) && os.Getenv(enginetest.EnvRequire) != "1" {
		t.Logf("the steps of the protocol are not validated: %v", err)
		return nil
	}
	require.NoError(t, err)
	return replay
}

// traced returns a file for the steps of all nodes, which is kept if t fails, and the flag that has them recorded.
func traced(t *testing.T) (file string, flags []string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sqlbrain-steps-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the steps of the protocol are kept in %s", dir)
			return
		}
		assert.NoError(t, os.RemoveAll(dir))
	})
	file = filepath.Join(dir, "steps")
	return file, []string{"--trace-protocol", file}
}

// leastSteps is what a round must have recorded to prove anything.
const leastSteps = 4 * leastRevisions

// validateSteps takes the steps in a file in the model of the protocol.
func validateSteps(t *testing.T, replay *model.Replay, file string) error {
	t.Helper()
	steps, err := model.Read(file)
	require.NoError(t, err)
	require.Greater(t, len(steps), leastSteps, "too few steps to prove anything")
	began := time.Now()
	account, err := replay.Validate(t.Context(), steps)
	t.Logf("validated within %s: %d steps of the protocol, %d linearizable reads among them",
		time.Since(began).Round(time.Millisecond), account.Steps, account.Reads)
	return err
}
