package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/report"
)

func newScoreboardCommand() *cobra.Command {
	var p place
	options, rounds, resume := plan.Scoreboard, 3, false
	cmd := &cobra.Command{
		Use: "scoreboard", Short: "Errors, events delivered and delays while objects come and go, on each system", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runScoreboard(cmd.Context(), &p, options, rounds, resume)
		},
	}
	p.register(cmd)
	f := cmd.Flags()
	f.IntVar(&rounds, "rounds", rounds, "rounds")
	f.BoolVar(&resume, "resume", false, "go on with what is in --out, if it is of the same programs and options")
	f.DurationVar(&options.Duration, "duration", options.Duration, "of a figure")
	f.IntSliceVar(&options.Churn, "clients", options.Churn, "numbers of clients")
	f.IntVar(&options.Watchers[0], "watchers", options.Watchers[0], "watchers of everything")
	f.IntVar(&options.Keys, "keys", options.Keys, "objects that come and go")
	return cmd
}

func runScoreboard(ctx context.Context, p *place, options plan.Options, rounds int, resume bool) error {
	p.name = scoreboardName
	file, err := measureAll(ctx, p, options, rounds, nil, resume)
	if err != nil {
		return err
	}
	return writePage(p.out, p.name, file, report.ScoreboardPlots, report.Scoreboard)
}
