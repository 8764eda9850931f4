package cluster

import (
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // the judges make much garbage
	eventually.NoLeaks(harness.Main(enginetest.Main(m)),
		// toxiproxy leaks a goroutine when a connection ends while a toxic is
		// added to it or removed.
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}

// duration returns how long rounds go on, 0 if a fixed number of them is asked
// for.
func duration(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv("SQLBRAIN_ROBUSTNESS_TIME")
	if s == "" {
		if harness.Long() {
			return 30 * time.Minute
		}
		return 0
	}
	d, err := time.ParseDuration(s)
	require.NoError(t, err, "SQLBRAIN_ROBUSTNESS_TIME")
	return d
}
