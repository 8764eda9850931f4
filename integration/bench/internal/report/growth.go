package report

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/growth"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
)

// GrowthPage is the page about growth, in Markdown.
func GrowthPage(f *growth.File, plots []string) string {
	var b strings.Builder
	b.WriteString("# By size of the data\n\nWritten by `make bench-growth`; [README.md](README.md) says how it measures. The figures are in [growth.json](growth.json).\n\n")
	b.WriteString(conditions(&result.File{Started: f.Started, Machine: f.Machine, Versions: f.Versions}, false))
	b.WriteString("\nTimes are in milliseconds, p50 / p99, where nothing else is said; – is what was not measured, or does not exist.\n\n")
	columns := []struct {
		title string
		cell  func(*growth.Point) string
	}{
		{"keys × versions", func(p *growth.Point) string { return fmt.Sprintf("%s × %d", whole(float64(p.Keys)), p.Versions) }},
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
	if len(plots) > 0 {
		b.WriteString("\n## Plots\n\nOne version of each key.\n\n")
		for _, p := range plots {
			fmt.Fprintf(&b, "![%s](%s)\n", strings.TrimSuffix(p, ".svg"), p)
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

func compactions(f *growth.File) string {
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
		fmt.Fprintf(&b, "| %s | %s | %s | %.2f | %.2f + %.2f | %s |\n", whole(float64(p.Keys)), p.System, whole(float64(c.Garbage)), c.Seconds, c.ServerCPU, c.DatabaseCPU, calls)
	}
	return b.String()
}

// GrowthPlots writes the plots of f into dir and returns their file names.
func GrowthPlots(f *growth.File, dir string) ([]string, error) {
	const mib = 1 << 20
	of := func(s *growth.Series, number func(*growth.Series) float64) float64 {
		if s == nil {
			return math.NaN()
		}
		return number(s)
	}
	p50 := func(s *growth.Series) float64 { return s.P50 }
	var names []string
	for _, c := range []struct {
		name, unit string
		value      func(*growth.Point) float64
	}{
		{"memory", "MiB of server and database", func(p *growth.Point) float64 {
			return of(p.Create, func(s *growth.Series) float64 { return float64(s.ServerRSS+s.DatabaseRSS) / mib })
		}},
		{"server-memory", "MiB of the server alone, after a start", func(p *growth.Point) float64 {
			if p.IdleServerRSS == 0 {
				return math.NaN()
			}
			return float64(p.IdleServerRSS) / mib
		}},
		{"get", "milliseconds, p50", func(p *growth.Point) float64 { return of(p.Get, p50) }},
		{"page", "milliseconds, p50", func(p *growth.Point) float64 { return of(p.Page, p50) }},
		{"page-from-random-key", "milliseconds, p50", func(p *growth.Point) float64 { return of(p.Jump, p50) }},
		{"count", "milliseconds, p50", func(p *growth.Point) float64 { return of(p.Count, p50) }},
		{"create", "milliseconds, p50", func(p *growth.Point) float64 { return of(p.Create, p50) }},
		{"start", "seconds", func(p *growth.Point) float64 { return result.SpreadOf(p.Starts).Median }},
	} {
		var lines []line
		for _, p := range f.Points {
			v := c.value(&p)
			if p.Versions != 1 || math.IsNaN(v) {
				continue
			}
			i := slices.IndexFunc(lines, func(l line) bool { return l.name == p.System })
			if i < 0 {
				i = len(lines)
				lines = append(lines, line{name: p.System})
			}
			lines[i].points = append(lines[i].points, plotter.XY{X: float64(p.Keys), Y: v})
		}
		for _, l := range lines {
			slices.SortFunc(l.points, func(a, b plotter.XY) int { return int(a.X - b.X) })
		}
		drawing, err := chart(c.name, "keys", c.unit, lines)
		if err != nil {
			return names, err
		}
		if drawing == nil {
			continue
		}
		name := "growth-" + c.name + ".svg"
		if err := drawing.Save(width, height, filepath.Join(dir, name)); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}
