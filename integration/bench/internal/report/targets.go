package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
)

// Target is a bound of the ratio of a system's median to a peer's.
type Target struct {
	System, Peer string
	Cell         string
	What         string // throughput, CPU, p50, p99
	Least        float64
	Most         float64 // 0: Least counts
}

// Outcome is a target with what was measured.
type Outcome struct {
	Target
	Own, Other, Ratio float64 // NaN if one was not measured
}

// Met reports whether the target is met; it is not if nothing was measured.
func (o *Outcome) Met() bool {
	if o.Most > 0 {
		return o.Ratio <= o.Most
	}
	return o.Ratio >= o.Least
}

// engines are those of sqlbrain's, with what they must reach in comparison with etcd, and writes with kine.
// Client and server share the machine, so throughput says little and CPU time for each operation more.
var engines = []struct {
	name                    string
	writeCPU, writes        float64
	mixedCPU, watchDelay    float64
	oneClient, writesToKine float64
}{
	{name: "mysql", writeCPU: 0.85, writes: 1.05, mixedCPU: 0.75, watchDelay: 0.75, oneClient: 1.4, writesToKine: 10},
	{name: "mariadb", writeCPU: 0.85, writes: 1.05, mixedCPU: 0.75, watchDelay: 0.75, oneClient: 1.4, writesToKine: 10},
	{name: "sqlite", writeCPU: 0.6, writes: 1.25, mixedCPU: 0.6, watchDelay: 0.7, oneClient: 1, writesToKine: 8},
}

// Targets are those of the systems that f has.
func Targets(f *result.File) []Target {
	var targets []Target
	o := f.Options
	at := func(workload string, clients ...int) (cells []string) {
		for _, n := range clients {
			cells = append(cells, fmt.Sprintf("%s-%d", workload, n))
		}
		return cells
	}
	for _, e := range engines {
		own, kine := "sqlbrain-"+e.name, "kine-"+e.name
		add := func(peer, what string, least, most float64, cells []string) {
			for _, c := range cells {
				targets = append(targets, Target{System: own, Peer: peer, Cell: c, What: what, Least: least, Most: most})
			}
		}
		many := o.Clients[1:]
		for _, w := range []string{"create", "update", "delete", "put"} {
			add(etcd, "CPU", 0, e.writeCPU, at(w, many...))
			add(etcd, "throughput", e.writes, 0, at(w, many...))
		}
		add(etcd, "p50", 0, e.oneClient, at("create", 1))
		add(etcd, "CPU", 0, 0.5, at("get", many...))
		add(etcd, "throughput", 1.3, 0, at("get", many...))
		add(etcd, "throughput", 1.3, 0, at("list", o.Lists...))
		add(etcd, "CPU", 0, e.mixedCPU, at("mixed", o.Mixed))
		add(etcd, "p99", 0, e.watchDelay, at("watch-latency", o.Watchers[0]))
		for _, w := range []string{"create", "update", "delete"} {
			add(kine, "throughput", e.writesToKine, 0, at(w, many...))
		}
		add(kine, "throughput", 8, 0, at("list", o.Lists...))
	}
	var known []Target
	for _, t := range targets {
		if has(f, t.System) && has(f, t.Peer) && len(f.Of(t.System, t.Cell)) > 0 {
			known = append(known, t)
		}
	}
	return known
}

func has(f *result.File, system string) bool {
	for _, s := range f.Systems {
		if s == system {
			return true
		}
	}
	return false
}

// Outcomes are the targets with what f measured.
func Outcomes(f *result.File) []Outcome {
	numbers := map[string]func(*result.Figure) float64{
		"throughput": throughput,
		"CPU":        func(g *result.Figure) float64 { return g.ServerCPU + g.DatabaseCPU },
		"p50":        func(g *result.Figure) float64 { return g.P50 },
		"p99":        func(g *result.Figure) float64 { return g.P99 },
	}
	var outcomes []Outcome
	for _, t := range Targets(f) {
		o := Outcome{Target: t, Own: f.Spread(t.System, t.Cell, numbers[t.What]).Median, Other: f.Spread(t.Peer, t.Cell, numbers[t.What]).Median}
		o.Ratio = o.Own / o.Other
		outcomes = append(outcomes, o)
	}
	return outcomes
}

func targetTable(f *result.File) string {
	var b strings.Builder
	outcomes := Outcomes(f)
	met := 0
	for _, o := range outcomes {
		if o.Met() {
			met++
		}
	}
	fmt.Fprintf(&b, "Ratios of medians; %d of %d are met.\n\n| | to | of | | | ratio | target | |\n|---|---|---|---|---|---|---|---|\n", met, len(outcomes))
	for _, o := range outcomes {
		bound, verdict := fmt.Sprintf("≥ %.2f", o.Least), "missed"
		if o.Most > 0 {
			bound = fmt.Sprintf("≤ %.2f", o.Most)
		}
		if o.Met() {
			verdict = "met"
		}
		own, other, ratio := whole(o.Own), whole(o.Other), fmt.Sprintf("%.2f", o.Ratio)
		switch o.What {
		case "CPU":
			own, other = fmt.Sprintf("%.0f µs", o.Own), fmt.Sprintf("%.0f µs", o.Other)
		case "p50", "p99":
			own, other = fmt.Sprintf("%.2f ms", o.Own), fmt.Sprintf("%.2f ms", o.Other)
		}
		if math.IsNaN(o.Ratio) {
			ratio, verdict = "–", "not measured"
		}
		if math.IsNaN(o.Own) {
			own = "–"
		}
		if math.IsNaN(o.Other) {
			other = "–"
		}
		fmt.Fprintf(&b, "| %s | %s | %s %s | %s | %s | %s | %s | %s |\n", o.System, o.Peer, o.Cell, o.What, own, other, ratio, bound, verdict)
	}
	return b.String()
}
