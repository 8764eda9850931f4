package report

import (
	"fmt"
	"strings"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/growth"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
)

// GrowthPage is the page about growth, in Markdown.
func GrowthPage(f *result.File) string {
	var b strings.Builder
	b.WriteString("# By size of the data\n\nWritten by `make bench WHAT=growth`; [README.md](README.md) says how it measures. The figures are in [growth.json](growth.json).\n\n")
	b.WriteString(conditions(f, false))
	b.WriteString("\nTimes are in milliseconds, p50 / p99, where nothing else is said; – is what was not measured, or does not exist.\n\n")
	columns := []struct {
		title string
		cell  func(*growth.Point) string
	}{
		{"keys × versions", func(p *growth.Point) string {
			return fmt.Sprintf("%s × %d", whole(float64(p.Keys)), p.Versions)
		}},
		{"", func(p *growth.Point) string { return p.System }},
		{"get, 16 clients", func(p *growth.Point) string { return series(p.Get) }},
		{"next page of 500, 4 clients", func(p *growth.Point) string { return series(p.Page) }},
		{"page from a random key", func(p *growth.Point) string { return series(p.Jump) }},
		{"count all", func(p *growth.Point) string { return series(p.Count) }},
		{"create, 16 clients", func(p *growth.Point) string { return series(p.Create) }},
		{"memory MiB: server + database", func(p *growth.Point) string {
			if p.Create == nil {
				return "–"
			}
			return fmt.Sprintf("%d + %d", p.Create.ServerRSS>>20, p.Create.DatabaseRSS>>20)
		}},
		{"disk MiB, logs included", func(p *growth.Point) string { return whole(float64(p.DiskBytes >> 20)) }},
		{"start s", func(p *growth.Point) string { return seconds(p.Starts) }},
		{"failover s (nodes)", func(p *growth.Point) string {
			if p.Failovers == nil {
				return "–"
			}
			return fmt.Sprintf("%s (%d)", seconds(p.Failovers), p.Nodes)
		}},
		{"load, versions per second (CPU µs)", func(p *growth.Point) string {
			if p.LoadSeconds == 0 {
				return "–"
			}
			return fmt.Sprintf("%s (%.0f)", whole(float64(p.Keys*p.Versions)/p.LoadSeconds), p.LoadCPU)
		}},
	}
	var titles []string
	for _, c := range columns {
		titles = append(titles, c.title)
	}
	b.WriteString("| " + strings.Join(titles, " | ") + " |\n" + strings.Repeat("|---", len(columns)) + "|\n")
	for _, p := range f.Points {
		for _, c := range columns {
			fmt.Fprintf(&b, "| %s ", c.cell(&p))
		}
		b.WriteString("|\n")
	}
	b.WriteString("\nStart: from the start of a server that was stopped in order to its first answer. Failover: from `kill -9` of the server to the next acknowledged write; " +
		"with one node, of the same server, started at once. Medians (least–most).\n")
	b.WriteString(compactions(f))
	for _, p := range f.Points {
		if p.Failure != "" {
			fmt.Fprintf(&b, "\n%s with %s ended early: %.300s\n", p.System, p.String(), strings.ReplaceAll(p.Failure, "\n", " "))
		}
	}
	return b.String()
}

func series(s *growth.Series) string {
	if s == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f / %.2f", s.P50, s.P99)
}

func seconds(values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	v := result.SpreadOf(values)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", v.Median, v.Min, v.Max)
}

func compactions(f *result.File) string {
	var b strings.Builder
	for _, p := range f.Points {
		c := p.Compaction
		if c == nil {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("\n## A pass of compaction\n\nOver keys with one version, of which some were replaced once. Seconds.\n\n" +
				"| keys | | versions removed | pass | CPU: server + database | time in the database |\n|---|---|---|---|---|---|\n")
		}
		calls := "–"
		if c.DatabaseSeconds > 0 {
			calls = fmt.Sprintf("%.2f", c.DatabaseSeconds)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %.2f | %.2f + %.2f | %s |\n", whole(float64(p.Keys)), p.System,
			whole(float64(c.Garbage)), c.Seconds, c.ServerCPU, c.DatabaseCPU, calls)
	}
	return b.String()
}
