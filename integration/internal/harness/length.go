package harness

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Long reports whether the tests that have a long form are to take it.
func Long() bool { return os.Getenv("SQLBRAIN_LONG") == "1" }

// Number returns the positive number in an environment variable. If the variable is not
// set, it returns the usual number, or that of the long form. A value that is not a
// positive number ends the test.
func Number(t testing.TB, env string, usual, long int) int {
	t.Helper()
	s := os.Getenv(env)
	switch {
	case s == "" && Long():
		return long
	case s == "":
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a positive number", env, s)
	}
	return n
}

// envSeed is the seed of an earlier run whose requests are to be repeated.
const envSeed = "SQLBRAIN_SEED"

// Seed returns the seed in SQLBRAIN_SEED, or a random one. The caller must print it, so
// that a failure can be repeated.
func Seed(t testing.TB) uint64 {
	t.Helper()
	s := os.Getenv(envSeed)
	if s == "" {
		return rand.Uint64()
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", envSeed, err)
	}
	return n
}
