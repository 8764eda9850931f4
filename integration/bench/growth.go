package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/growth"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/report"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
)

const (
	growthName = "growth"
	// growthQuota is etcd's at these sizes: its own advice ends at 8 GiB.
	growthQuota = 64 << 30
	// growthPool is InnoDB's cache at these sizes.
	growthPool = 4 << 30
)

// growthFlags are those of the growth command.
type growthFlags struct {
	place
	sizes     []string
	valueSize int
	kineMost  int
	etcdMost  int
	duration  time.Duration
	repeats   int
	resume    bool
}

func newGrowthCommand() *cobra.Command {
	var g growthFlags
	cmd := &cobra.Command{
		Use: "growth", Short: "How figures change with the size of the data", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.run(cmd.Context()) },
	}
	g.register(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&g.sizes, "sizes", []string{"10000x1", "10000x10", "10000x100", "100000x1", "100000x10", "1000000x1",
		"5000000x1"}, "keys x versions of each")
	f.IntVar(&g.valueSize, "value-size", 512, "bytes of a value")
	f.IntVar(&g.kineMost, "kine-most", 100_000,
		"versions, all together, up to which kine is measured: it loads one at a time")
	f.IntVar(&g.etcdMost, "etcd-most", 1_000_000, "versions, all together, up to which etcd is measured")
	f.DurationVar(&g.duration, "duration", 5*time.Second, "of a figure")
	f.IntVar(&g.repeats, "repeats", 3, "starts and failovers")
	f.BoolVar(&g.resume, "resume", false, "go on with what is in --out")
	return cmd
}

// parseSize reads "10000x10": keys, and versions of each.
func parseSize(s string) (growth.Dataset, error) {
	keys, versions, _ := strings.Cut(s, "x")
	n, err := strconv.Atoi(keys)
	v, versionsErr := strconv.Atoi(versions)
	if err != nil || versionsErr != nil || n < 1 || v < 1 {
		return growth.Dataset{}, fmt.Errorf("size %q: want keys x versions, as 10000x1", s)
	}
	return growth.Dataset{Keys: n, Versions: v}, nil
}

func (g *growthFlags) run(ctx context.Context) (err error) {
	var sizes []growth.Dataset
	for _, s := range g.sizes {
		d, err := parseSize(s)
		if err != nil {
			return err
		}
		d.ValueSize = g.valueSize
		sizes = append(sizes, d)
	}
	env, systems, remove, err := g.environment(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	env.Quota, env.BufferPool = growthQuota, growthPool
	path := filepath.Join(g.out, growthName+".json")
	file, err := begin(path, env, plan.Options{}, g.resume)
	if err != nil {
		return err
	}
	cfg := growth.Config{Environment: env, Duration: g.duration, Repeats: g.repeats, Progress: os.Stderr}
	for _, d := range sizes {
		for _, s := range systems {
			if total := d.Keys * d.Versions; s.Product == system.Kine && total > g.kineMost || s.Product == system.Etcd &&
				total > g.etcdMost || file.HasPoint(s.Name(), d) {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s %s with %s\n", time.Now().Format(time.TimeOnly), s.Name(), d.String())
			p, err := cfg.Measure(ctx, s, d)
			if err != nil {
				return err
			}
			if p.Failure != "" {
				fmt.Fprintln(os.Stderr, "  failed:", p.Failure)
			}
			file.AddPoint(*p)
			if err := result.Write(path, file); err != nil {
				return err
			}
		}
	}
	return writePage(g.out, growthName, file, report.GrowthPage)
}
