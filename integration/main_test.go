package integration

import (
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(harness.Main(enginetest.Main(m)))
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
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a positive number", env, s)
	}
	return n
}
