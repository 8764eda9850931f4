package runner

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/simulation"
	"github.com/sqlbrain/sqlbrain/integration/simulation/deterministic/overlay"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// TestMain builds the program once.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "runner-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "simulation.test")
		return m.Run()
	}())
}

var binary string

func build(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(binary); err == nil {
		return
	} else if !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	enginetest.Need(t, Build(t.Context(), binary), overlay.ErrUnknownGo)
}

// TestSameSeedSameTrace runs seeds in several processes: first, and after another seed.
func TestSameSeedSameTrace(t *testing.T) {
	build(t)
	for _, seed := range []uint64{1, 2, 3, 4, 5, 6, 7, 8} {
		want := trace(t, seed)
		if d := difference(want, trace(t, seed)); d != "" {
			t.Errorf("seed %d has another trace: %s", seed, d)
		}
		if d := difference(want, trace(t, seed+1, seed)); d != "" {
			t.Errorf("seed %d has another trace after seed %d: %s", seed, seed+1, d)
		}
	}
}

// trace simulates seeds one after the other in a new process, and returns the trace of the last.
func trace(t *testing.T, seeds ...uint64) []string {
	t.Helper()
	var plans []simulation.Plan
	for _, s := range seeds {
		plans = append(plans, simulation.NewPlan(s))
	}
	out, err := Repeat(t.Context(), binary, plans...)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Trace) < 1000 {
		t.Fatalf("%d lines of trace: %v", len(out.Trace), out.Violations)
	}
	return out.Trace
}

// difference is "" if two traces are equal.
func difference(w, g []string) string {
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return "line " + strconv.Itoa(i) + ":\n" + w[i] + "\n" + g[i]
		}
	}
	if len(w) != len(g) {
		return "lengths " + strconv.Itoa(len(w)) + " and " + strconv.Itoa(len(g))
	}
	return ""
}

// TestSeeds simulates SQLBRAIN_SIMULATION_SEEDS seeds, and begins none after SQLBRAIN_SIMULATION_TIME.
func TestSeeds(t *testing.T) {
	build(t)
	count, limit := uint64(500), 2*time.Minute
	if s := os.Getenv("SQLBRAIN_SIMULATION_SEEDS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		count = n
	}
	if s := os.Getenv("SQLBRAIN_SIMULATION_TIME"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		limit = d
	}
	began, done, failed := time.Now(), 0, 0
	err := Seeds(t.Context(), binary, 1, count, 2, func(r Report) bool {
		done++
		if len(r.Violations) > 0 {
			failed++
			t.Errorf("seed %d:\n%s\nrepeat: make simulate SEED=%d, or in its process: make simulate SEED=%d BATCH=%d", r.Seed,
				strings.Join(r.Violations[:min(len(r.Violations), 40)], "\n"), r.Seed, r.Seed, r.Batch)
		}
		return failed < 3 && time.Since(began) < limit
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d seeds", done, count)
	// A machine that is too slow must not pass because it has simulated nothing.
	if done < min(10, int(count)) && failed == 0 {
		t.Errorf("only %d seeds within %v", done, limit)
	}
}

// TestSeedsThatFailed simulates seeds that failed before a fault of the product was removed: a witness of lost commits whose
// start was lost too, and one that could not write in time, and reached no other node; keys of a lease that were listed
// without permission, and a node that began with older users and roles than its revision has.
func TestSeedsThatFailed(t *testing.T) {
	build(t)
	for seed, loses := range map[uint64]bool{212: true, 391: true, 395: true, 455: true, 219: false, 2379: false} {
		out, err := Repeat(t.Context(), binary, simulation.NewPlan(seed))
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Violations) > 0 || loses != (out.Stats.Lost > 0) || loses == (out.Stats.Claims > 0) {
			t.Errorf("seed %d, which lost %d revisions:\n%s", seed, out.Stats.Lost, strings.Join(out.Violations[:min(len(out.Violations), 40)], "\n"))
		}
	}
}

func sortedSkips(skips []simulation.Skip) []simulation.Skip {
	return slices.SortedFunc(slices.Values(skips), func(a, b simulation.Skip) int { return cmp.Or(cmp.Compare(a.Client, b.Client), a.From-b.From) })
}

func TestSeedsEndWhenAReportIsEnough(t *testing.T) {
	build(t)
	reports := 0
	err := Seeds(t.Context(), binary, 1, 100, 1, func(Report) bool {
		reports++
		return false
	})
	if err != nil || reports != 1 {
		t.Errorf("%d reports, %v", reports, err)
	}
}

// TestShrink shrinks plans for which a rule decides whether they fail.
func TestShrink(t *testing.T) {
	for seed := range uint64(50) {
		plan := simulation.NewPlan(seed)
		if len(plan.Faults) == 0 {
			continue
		}
		needed := plan.Faults[len(plan.Faults)/2]
		fails := func(p simulation.Plan) (simulation.Plan, simulation.Outcome, error) {
			// The requests 3 and 10 of a client are needed, and none of the other one.
			sent := func(n int) bool {
				return !slices.ContainsFunc(p.Skips, func(s simulation.Skip) bool { return s.Client == "c0" && s.From <= n && n < s.To })
			}
			for _, f := range p.Faults {
				if f.Seed == needed.Seed && p.Workload.Watchers >= 1 && sent(3) && sent(10) {
					return p, simulation.Outcome{Violations: []string{"it fails"}, Requests: map[string]int{"c0": 20, "c1": 5}}, nil
				}
			}
			return p, simulation.Outcome{}, nil
		}
		small, err := shrink(plan, fails, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		if len(small.Faults) != 1 || small.Faults[0].Seed != needed.Seed {
			t.Errorf("seed %d: %v instead of only %v", seed, small, needed)
		}
		if want := []simulation.Skip{{Client: "c0", From: 0, To: 3}, {Client: "c0", From: 4, To: 10}, {Client: "c0", From: 11, To: 20}, {Client: "c1", From: 0, To: 5}}; !slices.Equal(sortedSkips(small.Skips), want) {
			t.Errorf("seed %d: without %v instead of %v", seed, small.Skips, want)
		}
		if w := small.Workload; w.Clients != 1 || w.Watchers != 1 || w.Leases != 0 || w.Compact != 0 || w.Keys != 1 {
			t.Errorf("seed %d: %+v", seed, w)
		}
		if small.Duration >= plan.Duration || small.Faults[0].At+small.Faults[0].For > small.Duration {
			t.Errorf("seed %d: %v", seed, small)
		}
	}
}
