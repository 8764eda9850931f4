package deterministic_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/sqlbrain/sqlbrain/integration/simulation/deterministic"
	"github.com/sqlbrain/sqlbrain/integration/simulation/deterministic/overlay"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// seedsVariable names the seeds that a child process runs, in that order. It prints a digest of each trace.
const seedsVariable = "SQLBRAIN_DETERMINISTIC_SEEDS"

// TestChild is what the other tests run, in child processes.
func TestChild(t *testing.T) {
	seeds := os.Getenv(seedsVariable)
	if seeds == "" {
		t.Skip("runs in child processes of the other tests")
	}
	run := deterministic.Test
	if m, ok := os.LookupEnv(measuresVariable); ok {
		run = func(t *testing.T, seed uint64, f func(*testing.T)) { without(t, m, seed, f) }
	}
	for _, s := range strings.Split(seeds, ",") {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		var text string
		t.Run(s, func(t *testing.T) { text = record(t, seed, run) })
		b, err := json.Marshal(result{Seed: seed, Digests: digests(text)})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("result %s\n", b)
	}
}

type result struct {
	Seed    uint64
	Digests map[string]string // of each program
}

func child(t *testing.T, binary string, seeds string, env ...string) []result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestChild$", "-test.timeout=5m")
	cmd.Env = append(append(os.Environ(), seedsVariable+"="+seeds), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var results []result
	for line := range strings.Lines(string(out)) {
		if s, ok := strings.CutPrefix(line, "result "); ok {
			var r result
			if err := json.Unmarshal([]byte(s), &r); err != nil {
				t.Fatal(err)
			}
			results = append(results, r)
		}
	}
	if want := strings.Count(seeds, ",") + 1; len(results) != want {
		t.Fatalf("%d results instead of %d:\n%s", len(results), want, out)
	}
	return results
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "deterministic.test")
	enginetest.Need(t, overlay.BuildTest(t.Context(), ".", binary), overlay.ErrUnknownGo)
	return binary
}

// TestSameSeedSameTrace runs the same seeds in many processes, in different orders.
func TestSameSeedSameTrace(t *testing.T) {
	binary := build(t)
	processes := 8
	if os.Getenv("SQLBRAIN_LONG") != "" {
		processes = 50
	}
	// The first run of a process initializes what is initialized once, and differs: package doc.
	orders := []string{"0,1,2,3", "0,3,2,1", "0,2,2,1,3,1"}
	want := map[uint64]map[string]string{}
	for i := range processes {
		for _, r := range child(t, binary, orders[i%len(orders)])[1:] {
			first, ok := want[r.Seed]
			if !ok {
				want[r.Seed] = r.Digests
				if len(r.Digests) != len(programs) {
					t.Fatalf("%d digests of %d programs", len(r.Digests), len(programs))
				}
				continue
			}
			for name, d := range r.Digests {
				if first[name] != d {
					t.Errorf("seed %d, process %d: another trace of %s", r.Seed, i, name)
				}
			}
		}
	}
	for _, p := range programs {
		if p.name != "random" && want[1][p.name] == want[2][p.name] && want[2][p.name] == want[3][p.name] {
			t.Errorf("all seeds give the same trace of %s", p.name)
		}
	}
}

// TestWithoutOverlay counts the traces of one seed without the overlay, and with the overlay that makes them one.
// It only measures: the figures are in the package doc.
func TestWithoutOverlay(t *testing.T) {
	if os.Getenv("SQLBRAIN_LONG") == "" {
		t.Skip("only measures; set SQLBRAIN_LONG")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const processes = 50
	for _, measures := range [][]string{{""}, {"procs"}, {"procs", "GODEBUG=asyncpreemptoff=1"}, {"procs,collector", "GODEBUG=asyncpreemptoff=1"},
		{"procs,collector,crypto", "GODEBUG=asyncpreemptoff=1"}} {
		different := map[string]map[string]bool{}
		for range processes {
			r := child(t, self, "1", append(measures[1:], measuresVariable+"="+measures[0])...)[0]
			for name, d := range r.Digests {
				if different[name] == nil {
					different[name] = map[string]bool{}
				}
				different[name][d] = true
			}
		}
		line := ""
		for _, p := range programs {
			line += fmt.Sprintf(" %s %d", p.name, len(different[p.name]))
		}
		t.Logf("%v: different traces of %d:%s", measures, processes, line)
	}
}

// measuresVariable names the measures that a child takes, of those that need no overlay.
const measuresVariable = "SQLBRAIN_DETERMINISTIC_MEASURES"

func without(t *testing.T, measures string, seed uint64, f func(*testing.T)) {
	if strings.Contains(measures, "procs") {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	if strings.Contains(measures, "collector") {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
	}
	if strings.Contains(measures, "crypto") {
		cryptotest.SetGlobalRandom(t, seed)
	}
	synctest.Test(t, f)
}
