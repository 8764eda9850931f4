package atwork

import (
	"fmt"
	"strings"
	"time"
)

// result holds the measurements of one cluster on one store.
type result struct {
	description string
	steps       []stepResult
	peak        map[string]int64 // the most memory that each role's processes had
	objects     int              // compared with all pods there, key by key
	checks      map[string]float64
}

// stepResult is what a step took.
type stepResult struct {
	name      string
	took      time.Duration
	revisions int64
	cpu       map[string]time.Duration
	// others is the CPU time of everything outside the cluster: the test and other processes of the machine.
	others time.Duration
}

func (s stepResult) String() string {
	return fmt.Sprintf("%-22s %6.1f s, %6d revisions, CPU of store %.1f s, database %.1f s, API server %.1f s, others %.1f s",
		s.name, s.took.Seconds(), s.revisions, s.cpu[roleStore].Seconds(), s.cpu[roleDatabase].Seconds(),
		s.cpu["kube-apiserver"].Seconds(), s.others.Seconds())
}

// table compares the stores.
func table(sz size, results []result) string {
	var s strings.Builder
	row := func(first string, cell func(result) string) {
		fmt.Fprintf(&s, "| %s |", first)
		for _, r := range results {
			fmt.Fprintf(&s, " %s |", cell(r))
		}
		s.WriteString("\n")
	}
	head := func(title string) {
		s.WriteString("\n")
		row(title, func(r result) string { return r.description })
		s.WriteString("|---|" + strings.Repeat("---|", len(results)) + "\n")
	}
	fmt.Fprintf(&s, "%s\n", sz)

	head("seconds to converge (revisions; CPU seconds of others)")
	for i, st := range steps {
		row(st.name, func(r result) string {
			return fmt.Sprintf("%.1f (%d; %.0f)", r.steps[i].took.Seconds(), r.steps[i].revisions, r.steps[i].others.Seconds())
		})
	}
	head("CPU seconds of the store + its database, of the whole cluster's")
	for i, st := range steps {
		row(st.name, func(r result) string {
			cpu, all := r.steps[i].cpu, time.Duration(0)
			for _, spent := range cpu {
				all += spent
			}
			return fmt.Sprintf("%.1f + %.1f of %.1f", cpu[roleStore].Seconds(), cpu[roleDatabase].Seconds(), all.Seconds())
		})
	}
	head("memory at most, MiB")
	for _, role := range []string{roleStore, roleDatabase, "kube-apiserver"} {
		row(role, func(r result) string { return fmt.Sprint(r.peak[role] >> 20) })
	}
	row("objects compared key by key", func(r result) string { return fmt.Sprint(r.objects) })
	row("the API server's own comparisons, good / bad", func(r result) string {
		return fmt.Sprintf("%.0f / %.0f", r.checks["success"], r.checks["failure"])
	})
	return s.String()
}
