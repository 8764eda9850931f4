package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/report"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
)

// oneCoreWorkloads are what is measured on one core.
var oneCoreWorkloads = []string{"create", "update", "put", "get"}

func newOneCoreCommand() *cobra.Command {
	var p place
	options, rounds := plan.OneCore, 3
	cmd := &cobra.Command{
		Use: "onecore", Short: "Writes and gets on etcd and sqlbrain, server and client with one core each", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runOneCore(cmd.Context(), &p, options, rounds) },
	}
	p.register(cmd)
	f := cmd.Flags()
	f.IntVar(&p.oneCore, "gomaxprocs", 1, "GOMAXPROCS of servers")
	f.IntVar(&rounds, "rounds", rounds, "rounds")
	f.DurationVar(&options.Duration, "duration", options.Duration, "of a figure")
	f.IntSliceVar(&options.Clients, "clients", options.Clients, "numbers of clients")
	return cmd
}

// runOneCore writes the page, and fails if a figure is missing: the table compares all of them.
func runOneCore(ctx context.Context, p *place, options plan.Options, rounds int) error {
	if p.oneCore < 1 {
		return errors.New("--gomaxprocs must be at least 1")
	}
	if len(p.systems) > 0 && !slices.Contains(p.systems, string(system.Etcd)) {
		return fmt.Errorf("--systems must have %s: the others are compared with it", system.Etcd)
	}
	p.name = oneCoreName
	file, err := measureAll(ctx, p, options, rounds, oneCoreWorkloads, false)
	if err != nil {
		return err
	}
	none := func(*result.File, string) ([]string, error) { return nil, nil }
	page := func(f *result.File, _ []string) string { return report.OneCorePage(f, p.oneCore) }
	if err := writePage(p.out, oneCoreName, file, none, page); err != nil {
		return err
	}
	fmt.Fprint(os.Stdout, page(file, nil))
	var failed []error
	for _, g := range file.Figures {
		if g.Status != result.OK {
			failed = append(failed, fmt.Errorf("%s, %s: %s: %s", g.System, g.ID, g.Status, g.Reason))
		}
	}
	return errors.Join(failed...)
}
