package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
)

// Scoreboard is the page about churn, in Markdown.
func Scoreboard(f *result.File) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Scoreboard: objects come and go\n\nWritten by `make bench WHAT=scoreboard`; "+
		"[README.md](README.md) says how it measures. The figures are in [scoreboard.json](scoreboard.json).\n\n")
	fmt.Fprintf(&b, "Clients create, update, delete and create again the same %d objects as fast as answers come: of "+
		"five writes three update, one creates and one deletes. "+
		"%d watchers watch all of them. Each event must come to each watcher once, in order, with the object before and "+
		"after the write. "+
		"The number in a row's name is that of clients.\n\n", f.Options.Keys, f.Options.Watchers[0])
	b.WriteString(conditions(f, false) + sizes(f))
	for _, s := range []struct {
		title, text string
		value       func(*result.Figure) float64
		format      func(result.Spread) string
	}{
		{"Writes that failed", "Percent of the writes that were sent, least–most of the rounds. Failed writes were sent " +
			"again.", failed, span("%.2f %%")},
		{"Events delivered", "Percent of the events that had to come, least–most of the rounds.", delivered,
			span("%.2f %%")},
		{"Events too many", "Events that came twice or should not have come; the most of a round.",
			func(g *result.Figure) float64 { return float64(g.Unexpected) }, most},
		{"Events with another content", "Percent of the events that had to come: the key and the revision are right, and " +
			"the rest is not all as in etcd; least–most of the rounds.",
			func(g *result.Figure) float64 { return math.Ceil(1e4*float64(g.Different)/float64(g.Events)) / 100 },
			span("%.2f %%")},
		{"Faults", "Wrong answers, watchers whose events were not as above, and events that came out of order or after a " +
			"notice that all up to there had come; the most of a round. " +
			"The remarks have the first of each row.", func(g *result.Figure) float64 { return float64(g.Bad) }, most},
		{"Writes a second", "Median (least–most).", func(g *result.Figure) float64 { return g.PerSecond }, around},
		{"Delay of events, p50", "Milliseconds from the sending of a write to its event at a watcher: median (least–most).",
			func(g *result.Figure) float64 { return g.LagP50 }, around},
		{"Delay of events, p99", "In the same way.", func(g *result.Figure) float64 { return g.LagP99 }, around},
		{"Delay of answers, p99", "Milliseconds, of the most frequent kind of write: median (least–most).",
			func(g *result.Figure) float64 { return g.P99 }, around},
		{"CPU", "Microseconds for a write, with its events to all watchers, of the server and its database together: " +
			"median (least–most).",
			func(g *result.Figure) float64 { return g.ServerCPU + g.DatabaseCPU }, around},
	} {
		fmt.Fprintf(&b, "\n\n## %s\n\n%s\n\n", s.title, s.text)
		b.WriteString(rows(f, func(system string, c plan.Cell) string {
			v := spread(f, system, c.ID, s.value)
			if math.IsNaN(v.Median) {
				return "–"
			}
			return s.format(v)
		}))
	}
	if notes := notes(f); notes != "" {
		b.WriteString("\n## Remarks\n\n" + notes)
	}
	return b.String()
}

// failed and delivered are percentages. They are rounded to the worse, so that none and all mean that.
func failed(g *result.Figure) float64 {
	return math.Ceil(1e4*float64(g.Errors)/float64(g.Errors+g.Succeeded)) / 100
}

func delivered(g *result.Figure) float64 {
	return math.Floor(1e4*float64(g.Events-g.Missing)/float64(g.Events)) / 100
}

// spread is File.Spread, also of what was wrong: how much was is a figure here.
func spread(f *result.File, system, cell string, number func(*result.Figure) float64) result.Spread {
	var values []float64
	for _, g := range f.Of(system, cell) {
		if v := number(&g); g.Succeeded > 0 && !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return result.SpreadOf(values)
}

func span(format string) func(result.Spread) string {
	return func(s result.Spread) string {
		low, high := fmt.Sprintf(format, s.Min), fmt.Sprintf(format, s.Max)
		if low == high {
			return low
		}
		return low + " – " + high
	}
}

func most(s result.Spread) string { return fmt.Sprintf("%.0f", s.Max) }

func around(s result.Spread) string {
	return fmt.Sprintf("%s (%s–%s)", whole(s.Median), whole(s.Min), whole(s.Max))
}
