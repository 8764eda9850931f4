// simulate runs seeds of package simulation, in as many processes as the machine has cores, each seed exactly repeatable.
// docs/simulation.md explains it. It must run in the integration module. The exit code is 1 if a seed failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/simulation"
	"github.com/sqlbrain/sqlbrain/integration/simulation/runner"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	seeds := flags.Uint64("seeds", 1000, "how many seeds")
	first := flags.Uint64("first", 1, "the first seed")
	one := flags.Uint64("seed", 0, "one seed: print its trace")
	batch := flags.Uint64("batch", 0, "with -seed: run the seeds from this one in the same process first, for a seed that fails only there")
	shrink := flags.Bool("shrink", false, "with -seed: print the smallest plan that fails, and the end of its trace")
	limit := flags.Duration("time", 0, "stop after so long; 0: no limit")
	stopAt := flags.Int("failures", 10, "stop after so many failed seeds")
	processes := flags.Int("processes", runtime.NumCPU(), "how many processes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "simulate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "simulation.test")
	if err := runner.Build(ctx, binary); err != nil {
		return err
	}
	if *limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *limit)
		defer cancel()
	}
	switch {
	case *one != 0 && *shrink:
		return smallest(ctx, binary, simulation.NewPlan(*one))
	case *one != 0:
		return repeat(ctx, binary, *batch, *one)
	}
	return many(ctx, binary, *first, *seeds, *processes, *stopAt)
}

func many(ctx context.Context, binary string, first, count uint64, processes, stopAt int) error {
	began := time.Now()
	done, failed, lines := 0, []uint64{}, 0
	rate := func() string {
		return fmt.Sprintf("%d seeds, %.0f per minute, %d lines of traces, %d failed", done, float64(done)/time.Since(began).Minutes(), lines, len(failed))
	}
	next := time.Now().Add(time.Minute)
	err := runner.Seeds(ctx, binary, first, count, processes, func(r runner.Report) bool {
		done++
		lines += r.Lines
		if len(r.Violations) > 0 {
			failed = append(failed, r.Seed)
			fmt.Printf("seed %d failed:\n  %s\n  repeat: make simulate SEED=%d, or in its process: make simulate SEED=%d BATCH=%d\n",
				r.Seed, strings.Join(r.Violations[:min(len(r.Violations), 40)], "\n  "), r.Seed, r.Seed, r.Batch)
		}
		if time.Now().After(next) {
			next = time.Now().Add(time.Minute)
			fmt.Println(rate())
		}
		return len(failed) < stopAt
	})
	if err != nil {
		return err
	}
	fmt.Println(rate())
	if len(failed) > 0 {
		return fmt.Errorf("failed: %v", failed)
	}
	return nil
}

func repeat(ctx context.Context, binary string, batch, seed uint64) error {
	plans := []simulation.Plan{simulation.NewPlan(seed)}
	if batch != 0 {
		plans = nil
		for s := batch; s <= seed; s++ {
			plans = append(plans, simulation.NewPlan(s))
		}
	}
	out, err := runner.Repeat(ctx, binary, plans...)
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(out.Trace, "\n"))
	fmt.Printf("%v\ntrace %s, %d lines, %+v\n", plans[len(plans)-1], out.Digest, out.Lines, out.Stats)
	return judge(out)
}

func smallest(ctx context.Context, binary string, plan simulation.Plan) error {
	fmt.Println(plan)
	plan, out, err := runner.Shrink(ctx, binary, plan, func(s string) { fmt.Println("fails:", s) })
	if err != nil {
		return err
	}
	const tail = 100
	fmt.Println(strings.Join(out.Trace[max(0, len(out.Trace)-tail):], "\n"))
	fmt.Println(plan)
	return judge(out)
}

func judge(out simulation.Outcome) error {
	if len(out.Violations) > 0 {
		return fmt.Errorf("failed:\n%s", strings.Join(out.Violations, "\n"))
	}
	return nil
}
