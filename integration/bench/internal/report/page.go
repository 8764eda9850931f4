package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
)

const etcd = string(system.Etcd)

// about says what the workloads are.
var about = []struct{ workload, text string }{
	{"create", "create objects that do not exist: kube-apiserver's transaction"},
	{"update", "replace objects if their revision is still the known one; one of fifty is first tried with an outdated one"},
	{"delete", "delete objects if their revision is still the known one"},
	{"put", "replace objects without a condition, as kube-apiserver never does"},
	{"get", "read single objects"},
	{"list", "read all objects in pages of 500, all at one revision, following the continue key"},
	{"list-all", "read all objects in one answer"},
	{"count", "count all objects"},
	{"mixed", "get=60,update=30,create=7,delete=3: reads, optimistic updates, creations, deletions"},
	{"watch-latency", "from the sending of a write to its event"},
	{"grant", "grant leases"},
	{"keepalive", "renew leases, one for each client"},
}

// Page is the whole page, in Markdown.
func Page(f *result.File) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Side by side\n\nWritten by `make bench`; [README.md](README.md) says how it measures. The "+
		"figures are in [results.json](results.json).\n\n")
	b.WriteString(conditions(f, true))
	b.WriteString("\n## Throughput\n\nPer second: median of the rounds (least–most), and the ratio of the median to " +
		"etcd's. Lists: keys per second.\n\n")
	b.WriteString(table(f))
	b.WriteString("\n## Latency\n\nMilliseconds, p50 / p99, medians of the rounds. Watches: at every watcher.\n\n")
	b.WriteString(latencies(f))
	b.WriteString("\n## CPU\n\nMicroseconds of CPU for an operation, server + database / client, and the ratio of the " +
		"first two to etcd's; medians. " +
		"The client checks every answer.\n\n")
	b.WriteString(processors(f))
	b.WriteString("\n## Memory\n\nResident MiB at the end of the workload, server + database; medians. InnoDB's cache " +
		"fills up to its limit and stays.\n\n")
	b.WriteString(memory(f))
	if notes := notes(f); notes != "" {
		b.WriteString("\n## Remarks\n\n" + notes)
	}
	return b.String()
}

// Conditions are the machine and the programs.
func Conditions(f *result.File) string { return conditions(f, false) }

// conditions are the machine and the programs and, with workloads, what was run.
func conditions(f *result.File, workloads bool) string {
	var b strings.Builder
	m := f.Machine
	fmt.Fprintf(&b, "%s: %d cores of %s, %.0f GiB, %s, %s; writing and flushing 4 KiB takes %.2f ms (p99 %.2f).\n\n",
		f.Started.Format(time.DateOnly),
		m.Cores, cmp.Or(m.Processor, "an unnamed processor"), m.MemoryGiB, m.System,
		cmp.Or(m.FileSystem, "unknown file system"), m.FsyncP50, m.FsyncP99)
	for _, name := range slices.Sorted(maps.Keys(f.Versions)) {
		fmt.Fprintf(&b, "- %s: %s\n", name, f.Versions[name])
	}
	if !workloads {
		return b.String()
	}
	b.WriteString(sizes(f) + "\n\nWorkloads; the number after a name is that of clients, of watchers for watches:\n\n")
	for _, a := range about {
		fmt.Fprintf(&b, "- `%s`: %s\n", a.workload, a.text)
	}
	return b.String()
}

// sizes says how much was run, and on how busy a machine.
func sizes(f *result.File) string {
	var b strings.Builder
	o := f.Options
	fmt.Fprintf(&b, "\nRounds: %d; %v a figure; %d keys; values of %d bytes", f.Rounds, o.Duration, o.Keys, o.ValueSize)
	if o.SmallSize > 0 {
		fmt.Fprintf(&b, ", of %d where the name of a row ends in %dB", o.SmallSize, o.SmallSize)
	}
	b.WriteString(". ")
	var loads []float64
	for _, g := range f.Figures {
		loads = append(loads, g.Load)
	}
	load := result.SpreadOf(loads)
	fmt.Fprintf(&b, "The machine's load when a figure was begun: median %.1f, at most %.1f.", load.Median, load.Max)
	return b.String()
}

// throughput is what a cell is about: keys per second of lists, operations of others.
func throughput(f *result.Figure) float64 {
	if f.Workload == "list" || f.Workload == "list-all" {
		return f.Keys
	}
	return f.PerSecond
}

// cells are the cells that any system was measured on, in the plan's order.
func cells(f *result.File) []plan.Cell {
	return slices.DeleteFunc(f.Options.Cells(), func(c plan.Cell) bool {
		return !slices.ContainsFunc(f.Figures, func(g result.Figure) bool { return g.ID == c.ID })
	})
}

func header(f *result.File) string {
	return "| |" + strings.Join(append(slices.Clone(f.Systems), ""), " | ") + "\n|---|" +
		strings.Repeat("---|", len(f.Systems)) + "\n"
}

// rows makes a table with a cell for each system.
func rows(f *result.File, value func(name string, c plan.Cell) string) string {
	var b strings.Builder
	b.WriteString(header(f))
	for _, c := range cells(f) {
		fmt.Fprintf(&b, "| %s |", c.ID)
		for _, s := range f.Systems {
			fmt.Fprintf(&b, " %s |", value(s, c))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func table(f *result.File) string {
	return rows(f, func(s string, c plan.Cell) string {
		if c.Workload == "watch-latency" {
			return "" // written at a set rate
		}
		v := f.Spread(s, c.ID, throughput)
		if math.IsNaN(v.Median) {
			return "–"
		}
		text := fmt.Sprintf("%s (%s–%s)", whole(v.Median), whole(v.Min), whole(v.Max))
		return text + ratio(f, s, c.ID, throughput) + mark(f, s, c.ID)
	})
}

// ratio is that of a system's median to etcd's; "" if there is none.
func ratio(f *result.File, s, cell string, number func(*result.Figure) float64) string {
	own, base := f.Spread(s, cell, number).Median, f.Spread(etcd, cell, number).Median
	if s == etcd || math.IsNaN(own) || math.IsNaN(base) || base == 0 {
		return ""
	}
	return fmt.Sprintf(" **%.2f×**", own/base)
}

// mark returns a mark for figures that came with wrong answers.
func mark(f *result.File, s, cell string) string {
	for _, g := range f.Of(s, cell) {
		if g.Status == result.Wrong {
			return " ✗"
		}
	}
	return ""
}

func latencies(f *result.File) string {
	return rows(f, func(s string, c plan.Cell) string {
		p50 := f.Spread(s, c.ID, func(g *result.Figure) float64 { return g.P50 }).Median
		p99 := f.Spread(s, c.ID, func(g *result.Figure) float64 { return g.P99 }).Median
		if math.IsNaN(p50) {
			return "–"
		}
		return fmt.Sprintf("%.2f / %.2f", p50, p99)
	})
}

func processors(f *result.File) string {
	return rows(f, func(s string, c plan.Cell) string {
		server := f.Spread(s, c.ID, func(g *result.Figure) float64 { return g.ServerCPU }).Median
		database := f.Spread(s, c.ID, func(g *result.Figure) float64 { return g.DatabaseCPU }).Median
		client := f.Spread(s, c.ID, func(g *result.Figure) float64 { return g.ClientCPU }).Median
		text := whole(server)
		switch {
		case math.IsNaN(server):
			return "–"
		case database > 0:
			text += " + " + whole(database)
		}
		return text + " / " + whole(client) + ratio(f, s, c.ID,
			func(g *result.Figure) float64 { return g.ServerCPU + g.DatabaseCPU })
	})
}

func memory(f *result.File) string {
	const mib = 1 << 20
	return rows(f, func(s string, c plan.Cell) string {
		server := f.Spread(s, c.ID, func(g *result.Figure) float64 { return float64(g.ServerRSS) }).Median
		database := f.Spread(s, c.ID, func(g *result.Figure) float64 { return float64(g.DatabaseRSS) }).Median
		switch {
		case math.IsNaN(server):
			return "–"
		case database > 0:
			return fmt.Sprintf("%.0f + %.0f", server/mib, database/mib)
		}
		return fmt.Sprintf("%.0f", server/mib)
	})
}

// notes says why a figure is missing, or what was wrong with it.
func notes(f *result.File) string {
	var b strings.Builder
	for _, s := range f.Systems {
		said := map[string]bool{}
		for _, g := range f.Figures {
			if g.System != s || g.Status == result.OK {
				continue
			}
			key := g.ID
			if g.Status == result.Unsupported {
				key = g.Workload
			}
			if said[key] {
				continue
			}
			said[key] = true
			fmt.Fprintf(&b, "- %s, %s: %s: %s\n", s, key, g.Status, plain(fmt.Sprintf("%.300s", g.Reason)))
		}
	}
	return b.String()
}

// plain returns text as one line of a page, of which the site takes nothing for HTML or a template.
func plain(text string) string {
	return strings.NewReplacer("\n", " ", "&", "&amp;", "<", "&lt;", "{{", "{ {").Replace(text)
}

// whole formats a number below 10 with one decimal, others as an integer with
// separated thousands.
func whole(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
