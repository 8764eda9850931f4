package robustness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// envSabotage names safeguards that a sqlbrain built with the tag
// sqlbrain_sabotage leaves out; see server/fence/safeguards_off.go.
const envSabotage = "SQLBRAIN_SABOTAGE"

// verdict is what a judge says of a history that is wrong, or the log of one that
// contradicts itself.
var verdict = regexp.MustCompile(`linearization: Failure|watch: Failure|serializable: Failure|real time: |` +
	`the log goes from revision|the log has change|the fence row is at revision|contradict each other|no such version row`)

// noticed is a server's own verdict that the database has lost committed data.
var noticed = regexp.MustCompile(`the database lost committed data`)

// undecided is when a judge came to no end.
var undecided = regexp.MustCompile(`linearization: (Timeout|DeadlineExceeded)`)

// TestSafeguardsAreNeeded runs rounds on a sqlbrain in which a safeguard is
// missing: the judges must see it, or the servers.
func TestSafeguardsAreNeeded(t *testing.T) {
	harness.NeedsDatabase(t)
	if !harness.Long() {
		t.Skip("minutes: SQLBRAIN_LONG=1")
	}
	const most = 8
	programs := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "sqlbrain_sabotage", "-o", programs, "./cmd/sqlbrain")
	build.Dir = filepath.Join("..", "..") // in its own module, for the dependencies that users get
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, c := range []struct {
		missing string
		plan    string
		by      *regexp.Regexp
	}{
		// A leader that was frozen continues to answer while another leader writes.
		{"fence", "pause@leader/3s pause@leader/3s pause@leader/3s", verdict},
		// The frozen leader continues to write. Decreasing terms and existing log rows are a
		// second line of defence: the servers stop before they give a wrong answer.
		{"token", "pause@leader/3s pause@leader/3s pause@leader/3s", noticed},
		// Writes that the database did not commit are acknowledged.
		{"resolve", "reset-database@leader/1s swallow-database@leader/500ms reset-database@leader/1s", verdict},
	} {
		t.Run(c.missing, func(t *testing.T) {
			first := harness.Seed()
			for i := range uint64(most) {
				out, failed := child(t, first+i, programs, c.missing, c.plan)
				found := c.by.FindString(out)
				switch {
				case failed && undecided.MatchString(out):
				case failed && found == "":
					t.Fatalf("a round failed of itself:\n%s", out)
				case failed:
					t.Logf("seen in round %d: %s", i+1, lineOf(out, found))
					return
				}
			}
			t.Errorf("not seen in %d rounds", most)
		})
	}
}

// child runs one round in a separate process, on the sqlbrain in a directory of programs.
func child(t *testing.T, seed uint64, programs, missing, plan string) (out string, failed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLinearizable$", "-test.v",
		fmt.Sprintf("-seed=%d", seed), "-time=1ms", "-plan="+plan)
	cmd.Env = append(os.Environ(), envSabotage+"="+missing, harness.EnvPrograms+"="+programs)
	b, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return string(b), err != nil
}

// lineOf returns the line that has text in it.
func lineOf(out, text string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, text) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
