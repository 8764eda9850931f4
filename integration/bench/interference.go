package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/interfere"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
)

func newInterferenceCommand() *cobra.Command {
	var p place
	rounds, o := 3, interfere.Full
	cmd := &cobra.Command{
		Use: "interference", Short: "What compactions, snapshots, lists and the like cost other clients", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runInterference(cmd.Context(), &p, rounds, o)
		},
	}
	p.register(cmd)
	cmd.Flags().IntVar(&rounds, "rounds", rounds, "rounds")
	cmd.Flags().IntVar(&o.Keys, "keys", o.Keys, "of the background work")
	cmd.Flags().IntVar(&o.Versions, "versions", o.Versions, "of each of these keys")
	return cmd
}

// runInterference measures each system in turn, and writes the page.
func runInterference(ctx context.Context, p *place, rounds int, o interfere.Options) error {
	everything := len(p.systems) > 0
	if !everything { // on a database only what SQLite's file cannot: the rest takes half an hour
		p.systems = []string{"etcd", "sqlbrain-sqlite", "sqlbrain-mysql"}
	}
	found := map[string]map[string][]interfere.Figure{} // by work and system
	var works []string
	return p.inTurn(ctx, "interference", rounds, func(env *system.Environment, s system.System) error {
		o.Joins = !everything && s.Engine.Server()
		return interfere.Run(ctx, env, s, o, func(f interfere.Figure) {
			fmt.Fprintf(os.Stderr, "%s: %+v\n", s.Name(), f)
			if found[f.Work] == nil {
				found[f.Work] = map[string][]interfere.Figure{}
				works = append(works, f.Work)
			}
			found[f.Work][s.Name()] = append(found[f.Work][s.Name()], f)
		})
	}, func(systems []system.System, conditions string) string {
		return fmt.Sprintf("# Interference\n\nWritten by `make bench WHAT=interference`. %d clients put and get keys of "+
			"their own, while another "+
			"one works with %d keys of %d versions and %d bytes. Medians of %d rounds in turn.\n\n",
			o.Clients, o.Keys, o.Versions, o.ValueSize, rounds) + conditions +
			"\n| work | system | s | puts: p99, longest, ms | gets | puts, gets/s |\n|---|---|---|---|---|---|\n" +
			interferenceRows(systems, works, found)
	})
}

func interferenceRows(systems []system.System, works []string, found map[string]map[string][]interfere.Figure) string {
	var b strings.Builder
	for _, w := range works {
		for _, s := range systems {
			figures := found[w][s.Name()]
			if len(figures) == 0 {
				continue
			}
			if i := slices.IndexFunc(figures, func(f interfere.Figure) bool { return f.Failed != nil }); i >= 0 {
				reason, _, _ := strings.Cut(figures[i].Failed.Error(), "\n") // one row is one line
				fmt.Fprintf(&b, "| %s | %s | failed: %.200s |\n", w, s.Name(), reason)
				continue
			}
			median := func(value func(interfere.Figure) float64) float64 {
				var all []float64
				for _, f := range figures {
					all = append(all, value(f))
				}
				return result.SpreadOf(all).Median
			}
			fmt.Fprintf(&b, "| %s | %s | %.1f | %.1f, %.0f | %.1f, %.0f | %.0f, %.0f |\n", w, s.Name(),
				median(func(f interfere.Figure) float64 { return f.Seconds }),
				median(func(f interfere.Figure) float64 { return f.PutP99 }),
				median(func(f interfere.Figure) float64 { return f.PutMax }),
				median(func(f interfere.Figure) float64 { return f.GetP99 }),
				median(func(f interfere.Figure) float64 { return f.GetMax }),
				median(func(f interfere.Figure) float64 { return f.PutsPerSecond }),
				median(func(f interfere.Figure) float64 { return f.GetsPerSecond }))
		}
	}
	return b.String()
}
