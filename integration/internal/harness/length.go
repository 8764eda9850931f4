package harness

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Long reports whether the tests that have a long form are to take it.
func Long() bool { return os.Getenv("SQLBRAIN_LONG") == "1" }

// Number returns the positive number in an environment variable; without one the
// usual one, or that of the long form. What is no such number ends the test.
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

// envSeed has the requests of an earlier run made again.
const envSeed = "SQLBRAIN_SEED"

// Seed returns the seed in SQLBRAIN_SEED, or a random one. Who draws from it must
// tell it.
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
