package robustness

import (
	"flag"
	"runtime/debug"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // the judges make much garbage
	harness.TestMain(m)
}

var (
	roundsTime = flag.Duration("time", 0, "rounds with new seeds for so long")
	givenPlan  = flag.String("plan", "", "a plan of faults, in place of the one drawn from the seed")
)

// duration returns how long rounds go on, 0 if a fixed number of them is asked
// for.
func duration() time.Duration {
	if *roundsTime == 0 && harness.Long() {
		return 30 * time.Minute
	}
	return *roundsTime
}
