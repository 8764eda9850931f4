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
				f.Add(result.Figure{System: s, Round: round, Cell: c, Status: result.OK, PerSecond: v, Keys: v, P50: 1000 / v,
					P99: 2000 / v, ServerCPU: 600 / v, DatabaseCPU: 400 / v, Succeeded: 1})
			}
		}
	}
	return f
}

func TestMedianIsComparedWithEtcds(t *testing.T) {
	f := measured(map[string][]float64{"etcd": {100, 1, 1000}, "sqlbrain-sqlite": {1, 270, 9999},
		"kine-mysql": {10, 10, 10}})
	require.Equal(t, " **2.70×**", ratio(f, "sqlbrain-sqlite", "create-64", throughput))
	require.Equal(t, " **0.10×**", ratio(f, "kine-mysql", "create-64", throughput))
	require.Empty(t, ratio(f, "etcd", "create-64", throughput))
	require.Empty(t, ratio(f, "sqlbrain-mysql", "create-64", throughput), "not measured")
	page := Page(f)
	require.Contains(t, page, "| create-64 | 100 (1.0–1,000) | 270 (1.0–9,999) **2.70×** | 10 (10–10) **0.10×** |")
	require.Contains(t, page, "| create-64 | 6.0 + 4.0 / 0.0 | 2.2 + 1.5 / 0.0 **0.37×** | 60 + 40 / 0.0 **10.00×** |")
	require.Contains(t, Summary(f, []string{"etcd", "sqlbrain-sqlite"}),
		"| create, per second, 64 clients | 100 | 270 (2.70×) |\n| update")
}

func TestFailuresAreReported(t *testing.T) {
	f := measured(map[string][]float64{"etcd": {1}, "sqlbrain-sqlite": {9}})
	for i := range f.Figures {
		if g := &f.Figures[i]; g.System == "etcd" && g.ID == "create-64" {
			g.Status, g.Reason = result.Failed, "it\nbroke: <nil> {{x}}"
		}
	}
	require.Contains(t, Page(f), "- etcd, create-64: failed: it broke: &lt;nil> { {x}}\n",
		"the site takes nothing for HTML or a template")
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
	lines := strings.Split(table(f), "\n")
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

func TestNumbersAreWrittenShort(t *testing.T) {
	for v, want := range map[float64]string{0.04: "0.0", 9.94: "9.9", 10: "10", 999.6: "1,000", 1234567: "1,234,567"} {
		require.Equal(t, want, whole(v))
	}
}
