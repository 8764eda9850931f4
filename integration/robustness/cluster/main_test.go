package cluster

import (
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // the judges make much garbage
	goleak.VerifyTestMain(harness.Main(enginetest.Main(m)),
		// toxiproxy leaves a goroutine behind when a connection ends while a toxic is
		// added to it or removed.
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}

func long() bool { return os.Getenv("SQLBRAIN_LONG") == "1" }

// seed returns the seed of SQLBRAIN_SEED, or a random one.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := os.Getenv("SQLBRAIN_SEED")
	if s == "" {
		return rand.Uint64()
	}
	n, err := strconv.ParseUint(s, 10, 64)
	require.NoError(t, err, "SQLBRAIN_SEED")
	return n
}

// duration returns how long rounds go on, 0 if a fixed number of them is asked
// for.
func duration(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv("SQLBRAIN_ROBUSTNESS_TIME")
	if s == "" {
		if long() {
			return 30 * time.Minute
		}
		return 0
	}
	d, err := time.ParseDuration(s)
	require.NoError(t, err, "SQLBRAIN_ROBUSTNESS_TIME")
	return d
}
