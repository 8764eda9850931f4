package harness

import (
	"flag"
	"math/rand/v2"
	"os"
)

// Long reports whether the tests that have a long form are to take it.
func Long() bool { return os.Getenv("SQLBRAIN_LONG") == "1" }

// UsualOrLong returns one of two numbers: usual, or that of the long form.
func UsualOrLong(usual, long int) int {
	if Long() {
		return long
	}
	return usual
}

var seed = flag.Uint64("seed", 0, "the seed of an earlier run, whose requests are repeated; a failure prints it")

// Seed returns the value of the flag -seed, or a random one without it. The caller must print it, so that a failure can
// be repeated.
func Seed() uint64 {
	if *seed == 0 {
		return rand.Uint64()
	}
	return *seed
}

// GivenSeed returns the value of the flag -seed, 0 without it.
func GivenSeed() uint64 { return *seed }
