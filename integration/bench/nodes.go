package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/nodes"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
)

func newNodesCommand() *cobra.Command {
	var p place
	rounds, o := 3, nodes.Full
	cmd := &cobra.Command{
		Use: "nodes", Short: "What a Kubernetes cluster of many nodes costs: Lease objects, Events, watchers",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runNodes(cmd.Context(), &p, rounds, o) },
	}
	p.register(cmd)
	cmd.Flags().IntVar(&rounds, "rounds", rounds, "rounds")
	cmd.Flags().DurationVar(&o.Duration, "duration", o.Duration, "of a measurement")
	return cmd
}

// runNodes measures each system in turn, and writes the page.
func runNodes(ctx context.Context, p *place, rounds int, o nodes.Options) error {
	var names []string
	found := map[string]map[string][]float64{} // by name of the value, and system
	return p.inTurn(ctx, "nodes", rounds, func(env *system.Environment, s system.System) error {
		values, err := nodes.Run(ctx, env, s, o)
		for _, v := range values {
			if found[v.Name] == nil {
				found[v.Name] = map[string][]float64{}
				names = append(names, v.Name)
			}
			found[v.Name][s.Name()] = append(found[v.Name][s.Name()], v.Number)
		}
		fmt.Fprintf(os.Stderr, "%s: %+v\n", s.Name(), values)
		return err
	}, func(systems []system.System, conditions string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "# Many nodes\n\nWritten by `make bench WHAT=nodes`. The Lease objects of %d nodes are updated "+
			"every %v. %d Events are created each second, share a lease as in kube-apiserver, and expire after %v. Two "+
			"watchers of it watch all of these, and %d more a namespace's Events each. %d connections, values of %d bytes. "+
			"Delays count from when a write was due, those of watchers from its sending. Medians (least–most) of %d rounds "+
			"of %v in turn.\n\n%s\n|",
			o.Nodes, o.Period, o.Events, o.TTL, o.Watchers, o.Conns, o.ValueSize, rounds, o.Duration, conditions)
		for _, s := range systems {
			fmt.Fprintf(&b, " | %s", s.Name())
		}
		b.WriteString(" |\n|---" + strings.Repeat("|---", len(systems)) + "|\n")
		for _, name := range names {
			fmt.Fprintf(&b, "| %s", name)
			for _, s := range systems {
				v := result.SpreadOf(found[name][s.Name()])
				fmt.Fprintf(&b, " | %.2f (%.2f–%.2f)", v.Median, v.Min, v.Max)
			}
			b.WriteString(" |\n")
		}
		return b.String()
	})
}
