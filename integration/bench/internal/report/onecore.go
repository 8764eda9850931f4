package report

import (
	"fmt"
	"strings"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
)

// OneCorePage is the page of servers that had one core, in Markdown.
func OneCorePage(f *result.File, gomaxprocs int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# One core for the server\n\nWritten by `make bench-onecore`. The server, with `GOMAXPROCS=%d`, and its database have processor 0, the client has processor 1.\n\n", gomaxprocs)
	b.WriteString(conditions(f, false) + sizes(f))
	b.WriteString("\n\n## Throughput\n\nPer second: median of the rounds (least–most), and the ratio of the median to etcd's.\n\n")
	b.WriteString(table(f, throughput, true))
	b.WriteString("\n## CPU\n\nMicroseconds for an operation, of the server and its database together, in the same way.\n\n")
	b.WriteString(table(f, func(g *result.Figure) float64 { return g.ServerCPU + g.DatabaseCPU }, true))
	b.WriteString("\nDivided: server + database / client; medians.\n\n")
	b.WriteString(processors(f))
	if notes := notes(f); notes != "" {
		b.WriteString("\n## Remarks\n\n" + notes)
	}
	return b.String()
}
