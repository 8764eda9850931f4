package replicated

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// wait bounds what must happen at some time.
const wait = 2 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(harness.Main(enginetest.Main(m))) }

// number returns the number in an environment variable, or one of the defaults.
func number(t *testing.T, env string, usual, longRun int) int {
	t.Helper()
	s := os.Getenv(env)
	switch {
	case s == "" && os.Getenv("SQLBRAIN_LONG") == "1":
		return longRun
	case s == "":
		return usual
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err, env)
	require.Positive(t, n, env)
	return n
}

// newSeed returns the seed of SQLBRAIN_SEED or a random one, and tells it.
func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SQLBRAIN_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("replay the requests with SQLBRAIN_SEED=%d (their interleaving is the machine's)", seed)
	return seed
}
