package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
)

// measured is a file in which every cell of a system has these figures, one a round.
func measured(perSecond map[string][]float64) *result.File {
	f := &result.File{Options: plan.Full, Rounds: 3}
	for _, s := range []string{"etcd", "sqlbrain-sqlite", "sqlbrain-mysql", "kine-sqlite", "kine-mysql"} {
		if perSecond[s] == nil {
			continue
		}
		f.Systems = append(f.Systems, s)
		for _, c := range f.Options.Cells() {
			for round, v := range perSecond[s] {
				f.Add(result.Figure{System: s, Round: round, Cell: c, Status: result.OK, PerSecond: v, Keys: v, P50: 1000 / v, P99: 2000 / v, ServerCPU: 600 / v, DatabaseCPU: 400 / v, Succeeded: 1})
			}
		}
	}
	return f
}

func outcome(t *testing.T, f *result.File, system, peer, cell, what string) Outcome {
	t.Helper()
	for _, o := range Outcomes(f) {
		if o.System == system && o.Peer == peer && o.Cell == cell && o.What == what {
			return o
		}
	}
	t.Fatalf("no target for %s %s %s to %s", system, cell, what, peer)
	return Outcome{}
}

func TestTargetsCompareMedians(t *testing.T) {
	f := measured(map[string][]float64{
		"etcd": {100, 1, 1000}, "sqlbrain-sqlite": {1, 270, 9999}, "sqlbrain-mysql": {104, 104, 104},
		"kine-sqlite": {50, 50, 50}, "kine-mysql": {10, 10, 10},
	})
	for _, c := range []struct {
		system, peer, cell, what string
		ratio                    float64
		met                      bool
	}{
		{"sqlbrain-sqlite", "etcd", "create-64", "throughput", 2.7, true},
		{"sqlbrain-sqlite", "etcd", "create-64", "CPU", 1 / 2.7, true},
		{"sqlbrain-mysql", "etcd", "create-64", "throughput", 1.04, false},
		{"sqlbrain-mysql", "etcd", "create-64", "CPU", 1 / 1.04, false},
		{"sqlbrain-sqlite", "etcd", "create-1", "p50", 1 / 2.7, true},
		{"sqlbrain-mysql", "etcd", "get-512", "throughput", 1.04, false},
		{"sqlbrain-mysql", "etcd", "mixed-128", "CPU", 1 / 1.04, false},
		{"sqlbrain-sqlite", "etcd", "watch-latency-100", "p99", 1 / 2.7, true},
		{"sqlbrain-sqlite", "kine-sqlite", "delete-512", "throughput", 5.4, false},
		{"sqlbrain-sqlite", "kine-sqlite", "list-8", "throughput", 5.4, false},
		{"sqlbrain-mysql", "kine-mysql", "update-64", "throughput", 10.4, true},
	} {
		o := outcome(t, f, c.system, c.peer, c.cell, c.what)
		require.InDelta(t, c.ratio, o.Ratio, 1e-9, "%+v", c)
		require.Equal(t, c.met, o.Met(), "%+v", c)
	}
}

func TestTargetsThatWereNotMeasuredAreNotMet(t *testing.T) {
	f := measured(map[string][]float64{"etcd": {1}, "sqlbrain-sqlite": {9}})
	for i := range f.Figures {
		if g := &f.Figures[i]; g.System == "etcd" && g.ID == "create-64" {
			g.Status, g.Reason = result.Failed, "it\nbroke: <nil> {{x}}"
		}
	}
	o := outcome(t, f, "sqlbrain-sqlite", "etcd", "create-64", "CPU")
	require.False(t, o.Met())
	page := Page(f, nil)
	require.Contains(t, page, "not measured")
	require.Contains(t, page, "- etcd, create-64: failed: it broke: &lt;nil> { {x}}\n", "the site takes nothing for HTML or a template")
}

func TestWrongAnswersAreReported(t *testing.T) {
	f := measured(map[string][]float64{"etcd": {100}, "sqlbrain-sqlite": {900}})
	for i := range f.Figures {
		switch g := &f.Figures[i]; {
		case g.System == "etcd" && g.ID == "get-64": // a few: reported next to the figure
			g.Status, g.Bad, g.Answers = result.Wrong, 1, 1000
		case g.System == "etcd" && g.ID == "get-512": // many: no figure
			g.Status, g.Bad, g.Answers = result.Wrong, 500, 1000
		}
	}
	require.Equal(t, 100.0, f.Spread("etcd", "get-64", throughput).Median)
	lines := strings.Split(table(f, throughput, true), "\n")
	find := func(cell string) string {
		for _, l := range lines {
			if strings.HasPrefix(l, "| "+cell+" |") {
				return l
			}
		}
		return ""
	}
	require.Contains(t, find("get-64"), "100 (100–100) ✗ |")
	require.Contains(t, find("get-512"), "| – |")
	require.Contains(t, find("get-1"), "900 (900–900) **9.00×**")
}

func TestPlotsAreDrawn(t *testing.T) {
	names, err := Plots(measured(map[string][]float64{"etcd": {100, 110, 90}, "sqlbrain-sqlite": {9, 10, 12}}), t.TempDir())
	require.NoError(t, err)
	require.Contains(t, names, "throughput-create.svg")
	require.Contains(t, names, "latency-mixed-128.svg")
}

func TestNumbersAreWrittenShort(t *testing.T) {
	for v, want := range map[float64]string{0.04: "0.0", 9.94: "9.9", 10: "10", 999.6: "1,000", 1234567: "1,234,567"} {
		require.Equal(t, want, whole(v))
	}
}
