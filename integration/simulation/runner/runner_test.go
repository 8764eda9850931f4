package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/simulation"
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
	if err := Build(t.Context(), binary); err != nil {
		t.Fatal(err)
	}
}

// TestSameSeedSameTrace runs a seed in several processes: after other seeds, and first.
func TestSameSeedSameTrace(t *testing.T) {
	build(t)
	const seed = 5
	want := ""
	for _, order := range [][]uint64{{seed}, {seed}, {seed - 1, seed}, {seed + 2, seed + 1, seed, seed}} {
		var plans []simulation.Plan
		for _, s := range order {
			plans = append(plans, simulation.NewPlan(s))
		}
		out, err := Repeat(t.Context(), binary, plans...)
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Trace) < 1000 {
			t.Fatalf("%d lines of trace: %v", len(out.Trace), out.Violations)
		}
		got := strings.Join(out.Trace, "\n")
		if want == "" {
			want = got
		} else if got != want {
			t.Errorf("order %v: another trace: %s", order, difference(want, got))
		}
	}
}

func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return "line " + strconv.Itoa(i) + ":\n" + w[i] + "\n" + g[i]
		}
	}
	return "lengths " + strconv.Itoa(len(w)) + " and " + strconv.Itoa(len(g))
}

// TestSeeds simulates SQLBRAIN_SIMULATION_SEEDS seeds, for at most SQLBRAIN_SIMULATION_TIME.
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
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	done, failed := 0, 0
	err := Seeds(ctx, binary, 1, count, 2, func(r Report) bool {
		done++
		if len(r.Violations) > 0 {
			failed++
			t.Errorf("seed %d:\n%s\nrepeat: make simulate SEED=%d, or in its process: make simulate SEED=%d BATCH=%d", r.Seed,
				strings.Join(r.Violations[:min(len(r.Violations), 40)], "\n"), r.Seed, r.Seed, r.Batch)
		}
		return failed < 3
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

// TestShrink shrinks plans for which a rule decides whether they fail.
func TestShrink(t *testing.T) {
	for seed := range uint64(50) {
		plan := simulation.NewPlan(seed)
		needed := plan.Faults[len(plan.Faults)/2]
		fails := func(p simulation.Plan) (simulation.Plan, bool, error) {
			for _, f := range p.Faults {
				if f.Seed == needed.Seed && p.Workload.Watchers >= 1 {
					return p, true, nil
				}
			}
			return p, false, nil
		}
		small, err := shrink(plan, fails, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		if len(small.Faults) != 1 || small.Faults[0].Seed != needed.Seed {
			t.Errorf("seed %d: %v instead of only %v", seed, small, needed)
		}
		if w := small.Workload; w.Clients != 1 || w.Watchers != 1 || w.Leases != 0 || w.Compact != 0 || w.Keys != 1 {
			t.Errorf("seed %d: %+v", seed, w)
		}
		if small.Duration >= plan.Duration || small.Faults[0].At+small.Faults[0].For > small.Duration {
			t.Errorf("seed %d: %v", seed, small)
		}
	}
}
