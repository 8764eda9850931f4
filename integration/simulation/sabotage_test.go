package simulation

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

const (
	// envSabotage names safeguards that a build with the tag sqlbrain_sabotage leaves out; see
	// server/fence/safeguards_off.go.
	envSabotage = "SQLBRAIN_SABOTAGE"
	// envRounds is how many seeds are tried for each.
	envRounds = "SQLBRAIN_SABOTAGE_ROUNDS"
)

// TestSafeguardsAreNeeded simulates seeds without a safeguard: the judges must notice that.
func TestSafeguardsAreNeeded(t *testing.T) {
	if !harness.Long() && os.Getenv(envRounds) == "" {
		t.Skipf("minutes: SQLBRAIN_LONG=1, or %s, for how many seeds are tried", envRounds)
	}
	most := harness.Number(t, envRounds, 300, 300)
	for _, missing := range []string{"settle", "fence", "chain"} {
		t.Run(missing, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-failfast", "-timeout=0", "-tags=sqlbrain_sabotage", "-run=^TestSeeds$", ".")
			cmd.Env = append(os.Environ(), envSabotage+"="+missing, fmt.Sprintf("%s=%d", envSeeds, most), envSeed+"=1")
			out, err := cmd.CombinedOutput()
			seed := regexp.MustCompile(`repeat: .*` + envSeed + `=(\d+)`).FindSubmatch(out)
			switch {
			case seed != nil:
				t.Logf("noticed with seed %s", seed[1])
			case err != nil:
				t.Fatalf("%v\n%s", err, out)
			default:
				t.Errorf("not noticed in %d seeds", most)
			}
		})
	}
}
