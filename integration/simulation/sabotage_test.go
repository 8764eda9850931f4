package simulation

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// envSabotage names safeguards that a build with the tag sqlbrain_sabotage leaves out; see
// server/fence/safeguards_off.go.
const envSabotage = "SQLBRAIN_SABOTAGE"

// TestSafeguardsAreNeeded simulates seeds without a safeguard: the judges must notice that, and so must the model that
// takes the steps. Without the comparison of the fence row (token) the judges notice at the 14th seed or so: a commit
// creates the rows of its revision, so that a deposed leader's conflicts unless its successor has not written it yet.
func TestSafeguardsAreNeeded(t *testing.T) {
	if !harness.Long() {
		t.Skip("minutes: SQLBRAIN_LONG=1")
	}
	const most = 300
	for _, missing := range []string{"resolve", "fence", "token"} {
		t.Run(missing, func(t *testing.T) { requireNoticed(t, "TestSeeds", missing, most) })
		t.Run(missing+"/steps", func(t *testing.T) { requireNoticed(t, "TestStepsAreThoseOfTheModel", missing, most) })
	}
}

// requireNoticed runs a test on a build in which a safeguard is missing, and requires that it fails for one of the
// first seeds.
func requireNoticed(t *testing.T, test, missing string, seeds int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-failfast", "-timeout=0",
		"-tags=sqlbrain_sabotage", "-run=^"+test+"$", ".", fmt.Sprintf("-seeds=%d", seeds))
	cmd.Env = append(os.Environ(), envSabotage+"="+missing)
	out, err := cmd.CombinedOutput()
	seed := regexp.MustCompile(`repeat: .* -seed=(\d+)`).FindSubmatch(out)
	switch {
	case seed != nil:
		t.Logf("noticed with seed %s", seed[1])
		if refusal := regexp.MustCompile(`the model does not allow[^\n]*\n[^\n]*`).Find(out); refusal != nil {
			t.Logf("%s", refusal)
		}
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	default:
		t.Errorf("not noticed in %d seeds", seeds)
	}
}
