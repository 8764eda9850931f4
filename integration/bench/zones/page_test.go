//go:build linux

package zones

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/machine"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/report"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
)

// introduction is the page's beginning, with the round trip, the size of values, and how much the router took at most.
const introduction = `# Three zones: what to expect in a cloud

Written by ` + "`make bench WHAT=zones`" + `. Three members of etcd, and of sqlbrain over two databases, in zones
that are a round trip of %v apart:

- **MariaDB**: the primary is in the first zone, and each commit waits for a replica in the third.
- **Group Replication**: three servers of MySQL, one in each zone; the primary is in the first.
  ` + "`group_replication_member_expel_timeout` is 0: its default makes each failover of the database " +
	"[15 s longer](../engines.md#how-long-writes-fail)" + `.

The leader is in the primary's zone, or elsewhere: in the second. Values of %d bytes. All programs share the machine,
and many clients measure its processors. The router, which delays packets between the zones, took up to %.1f cores.

## What to expect
- A put waits for a commit: a round trip with a replica, two with a group. Another one if the leader is elsewhere, and
  another one from the other zones. Puts share commits; with many clients the database's processors are the limit.
- A get in the leader's zone waits for no other zone. Elsewhere it asks the leader, as with etcd.
- A lost leader costs seconds, as with etcd, and a lost primary the time until its group believes that it is gone.

`

// page returns the page.
func (m *measurements) page(t *testing.T) []byte {
	t.Helper()
	here, err := machine.Look(t.TempDir())
	require.NoError(t, err)
	var b bytes.Buffer
	router := 0.0
	for _, f := range m.figures {
		router = max(router, f.router)
	}
	fmt.Fprintf(&b, introduction, near, valueSize, router)
	b.WriteString(report.Conditions(&result.File{Started: time.Now(), Machine: here}))
	fmt.Fprintf(&b, "\n## Round trips\n\nMedians of one client, with zones %v apart: in the leader's zone, and in the "+
		"others.\n\n| |", far)
	for _, r := range requests {
		fmt.Fprintf(&b, " %s: leader's zone | others |", r.name)
	}
	b.WriteString("\n|---" + strings.Repeat("|---|---", len(requests)) + "|\n")
	for _, s := range systems {
		fmt.Fprintf(&b, "| %s |", s)
		for _, r := range requests {
			f := m.figures[fmt.Sprint(s, r.name)]
			fmt.Fprintf(&b, " %.1f | %.1f |", f.leader, f.following)
		}
		b.WriteString("\n")
	}
	m.failovers(&b)
	fmt.Fprintf(&b, "\n## Zones %v apart\n\np50 and p99 in ms: in the leader's zone, and in the others.\n\n"+
		"| | clients in each zone | | a second | leader's zone | others |\n|---|---|---|---|---|---|\n", near)
	for _, r := range requests {
		for _, n := range m.clients {
			for _, s := range systems {
				f := m.figures[fmt.Sprint(s, r.name, n)]
				fmt.Fprintf(&b, "| %s | %d | %s | %.0f | %s | %s |\n", r.name, n, s, f.perSecond, p50p99(f.leaders),
					p50p99(f.others))
			}
		}
	}
	return b.Bytes()
}

// failovers writes how long writes fail.
func (m *measurements) failovers(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## Failover\n\nSeconds until both other zones have put a key, with zones %v apart: the median of "+
		"%d and the longest. No acknowledged put was lost.\nWithout a figure: not measured, such as a MariaDB whose "+
		"replica nothing promotes.\n\n| |", near, rounds)
	for _, f := range faults {
		fmt.Fprintf(b, " %s |", f.name)
	}
	b.WriteString("\n|---" + strings.Repeat("|---", len(faults)) + "|\n")
	for _, s := range systems {
		fmt.Fprintf(b, "| %s |", s)
		for _, f := range faults {
			waits := slices.Sorted(slices.Values(m.waits[s+f.name]))
			if len(waits) == 0 {
				b.WriteString(" |")
				continue
			}
			fmt.Fprintf(b, " %.1f, %.1f |", waits[len(waits)/2].Seconds(), waits[len(waits)-1].Seconds())
		}
		b.WriteString("\n")
	}
}
