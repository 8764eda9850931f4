package cluster

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(harness.Main(enginetest.Main(m)),
		// toxiproxy leaves a goroutine behind when a connection ends while a toxic is
		// added to it or removed.
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}

// long reports whether the tests that have a long form are to take it.
func long() bool { return os.Getenv("SQLBRAIN_LONG") == "1" }

// number returns the number in an environment variable, or one of the defaults.
func number(t *testing.T, env string, usual, longRun int) int {
	t.Helper()
	s := os.Getenv(env)
	switch {
	case s == "" && long():
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
