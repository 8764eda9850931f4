package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
)

// summary are the figures that are quoted, of many; those with brief are also quoted if few systems are.
var summary = []struct {
	title, cell string
	brief       bool
	number      func(*result.Figure) float64
	milli       bool // milliseconds, and no ratio
}{
	{"create, per second, 64 clients", "create-64", true, throughput, false},
	{"create, 512 clients", "create-512", false, throughput, false},
	{"create, one client, p50 ms", "create-1", false, func(g *result.Figure) float64 { return g.P50 }, true},
	{"update, 64 clients", "update-64", true, throughput, false},
	{"delete, 512 clients", "delete-512", false, throughput, false},
	{"mixed, 128 clients", "mixed-128", true, throughput, false},
	{"get, 64 clients", "get-64", true, throughput, false},
	{"list, pages of 500, 8 clients, keys per second", "list-8", true, throughput, false},
	{"count, 64 clients", "count-64", false, throughput, false},
	{"write to event, 100 watchers, p50 ms", "watch-latency-100", false,
		func(g *result.Figure) float64 { return g.P50 }, true},
	{"write to event, 100 watchers, p99 ms", "watch-latency-100", true,
		func(g *result.Figure) float64 { return g.P99 }, true},
}

// Summary is a table of the most telling medians, and of sqlbrain's ratios to etcd's. If it is of some systems only,
// it has fewer rows.
func Summary(f *result.File, systems []string) string {
	brief := systems != nil
	if !brief {
		systems = f.Systems
	}
	version := func(program string) string {
		v, _, _ := strings.Cut(strings.TrimPrefix(f.Versions[program], "v"), " ")
		v, _, _ = strings.Cut(v, ",")
		v, _, _ = strings.Cut(v, "-")
		return v
	}
	titles := map[string]string{
		"etcd":            "etcd " + version("etcd"),
		"sqlbrain-sqlite": "sqlbrain, SQLite", "sqlbrain-mysql": "sqlbrain, MySQL " + version("mysql"),
		"sqlbrain-mariadb": "sqlbrain, MariaDB " + version("mariadb"),
		"sqlbrain-tidb":    "sqlbrain, TiDB " + version("tidb"), "kine-tidb": "kine " + version("kine") + ", TiDB",
		"kine-sqlite": "kine " + version("kine") + ", SQLite", "kine-mysql": "kine " + version("kine") + ", MySQL",
		"kine-mariadb": "kine " + version("kine") + ", MariaDB",
	}
	var b strings.Builder
	b.WriteString("| |")
	for _, s := range systems {
		fmt.Fprintf(&b, " %s |", titles[s])
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(systems)) + "\n")
	for _, row := range summary {
		if brief && !row.brief {
			continue
		}
		fmt.Fprintf(&b, "| %s |", row.title)
		for _, s := range systems {
			v := f.Spread(s, row.cell, row.number).Median
			switch {
			case len(f.Of(s, row.cell)) == 0:
				b.WriteString(" – |")
			case row.milli:
				fmt.Fprintf(&b, " %.2f |", v)
			case strings.HasPrefix(s, "sqlbrain") && slices.Contains(systems, etcd):
				fmt.Fprintf(&b, " %s (%.2f×) |", whole(v), v/f.Spread(etcd, row.cell, row.number).Median)
			default:
				fmt.Fprintf(&b, " %s |", whole(v))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
