package simulation

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

var (
	givenSeeds = flag.Int("seeds", 0, "how many seeds each test simulates, starting with -seed, or 1")
	traces     = flag.String("traces", "", "a directory that gets the different traces of each seed")
)

// sometimes are texts that must occur in some of enough traces. Otherwise the simulation no
// longer causes what it is to try.
var sometimes = []string{
	"commit is in doubt", "executed late", "answer lost", "gave up", "took over", "process is gone", "compact revision",
	"refused",
	"hangs", "handed the lock over", "history needed to catch up",
}

// enough is how many seeds show all of sometimes.
const enough = 100

// failedOnce are seeds that failed before a fault of the product was removed: a witness of lost commits whose start
// was lost too, and one that could not write in time, and reached no other node.
var failedOnce = []uint64{212, 391, 395, 455}

// TestSeeds simulates seeds, by default enough for most kinds of plans, and those that failed once.
func TestSeeds(t *testing.T) {
	first, count := seeds(120, 2000)
	var all []uint64
	for seed := first; seed < first+count; seed++ {
		all = append(all, seed)
	}
	if harness.GivenSeed() == 0 {
		all = append(all, failedOnce...)
	}
	seen := make(map[string]bool)
	for _, seed := range all {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			p := NewPlan(seed)
			t.Log(p) // first: a panic ends the test
			r := Run(t, p)
			report(t, p, r)
			for _, text := range sometimes {
				seen[text] = seen[text] || r.has(text)
			}
		})
	}
	for _, text := range sometimes {
		if count >= enough && !seen[text] {
			t.Errorf("%q occurs in no trace", text)
		}
	}
}

// seeds returns the first seed to simulate, and how many: few, or many in the long form.
func seeds(few, many int) (first, count uint64) {
	return max(1, harness.GivenSeed()), uint64(cmp.Or(*givenSeeds, harness.UsualOrLong(few, many)))
}

func (r Result) has(text string) bool {
	for _, line := range r.Trace {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}

// report logs what a simulation found, and fails the test if that was wrong.
func report(t *testing.T, p Plan, r Result) {
	t.Helper()
	if dir := *traces; dir != "" {
		text := strings.Join(r.Trace, "\n") + "\n"
		name := fmt.Sprintf("%d-%x.txt", p.Seed, hash(text))
		if err := errors.Join(os.MkdirAll(dir, 0o700),
			os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d trace lines, %+v", len(r.Trace), r.Stats)
	if len(r.Violations) > 0 {
		t.Errorf("%s\n%v\n%s", strings.Join(r.Violations, "\n"), p, again(t, p.Seed))
	}
}

// again is the command that simulates a seed 20 times more: the order of goroutines differs each time.
func again(t *testing.T, seed uint64) string {
	test, _, _ := strings.Cut(t.Name(), "/")
	sabotage, tags := "", ""
	if missing := os.Getenv(envSabotage); missing != "" {
		sabotage, tags = envSabotage+"="+missing+" ", " -tags sqlbrain_sabotage"
	}
	return fmt.Sprintf("repeat: %sgo test -count=20%s ./simulation -run '^%s$' -seed=%d -seeds=1", sabotage, tags, test,
		seed)
}
