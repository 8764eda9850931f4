package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/compare"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/machine"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/report"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
)

// Names of results, which are in a JSON file, and of the pages about them.
const (
	resultsName    = "results"
	growthName     = "growth"
	oneCoreName    = "onecore"
	scoreboardName = "scoreboard"
)

// place are the flags that all commands share.
type place struct {
	out      string
	programs string
	module   string
	data     string
	systems  []string
	redoLog  int64  // of databases, see system.Environment
	oneCore  int    // see system.Environment
	name     string // of the results
}

func (p *place) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.out, "out", "../../docs/benchmarks", "directory of the results, the page and the plots")
	f.StringVar(&p.programs, "programs", "../../bin/bench", "directory of the programs that are built")
	f.StringVar(&p.module, "module", ".", `directory of this module; "": the programs are there, and are not built`)
	f.StringVar(&p.data, "data", os.TempDir(), "directory of the data, which is removed: its disk is measured")
	f.StringSliceVar(&p.systems, "systems", nil, "what to compare (default etcd, and sqlbrain and kine on SQLite and on MySQL, or on MariaDB where there is no MySQL)")
}

// environment builds what is needed for the systems. The caller calls remove when
// it is done.
func (p *place) environment(ctx context.Context) (env *system.Environment, systems []system.System, remove func() error, err error) {
	if p.oneCore > 0 {
		if err := system.CheckCores(); err != nil {
			return nil, nil, nil, err
		}
	}
	var programs system.Programs
	if err := programs.FindDatabases(); err != nil {
		return nil, nil, nil, err
	}
	names := p.systems
	if len(names) == 0 {
		names = []string{"etcd", "sqlbrain-sqlite", "kine-sqlite"}
		switch {
		case programs.MySQL != "":
			names = append(names, "sqlbrain-mysql", "kine-mysql")
		case programs.MariaDB != "":
			names = append(names, "sqlbrain-mariadb", "kine-mariadb")
		}
		if p.oneCore > 0 {
			names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, string(system.Kine)) })
		}
	}
	if systems, err = system.Parse(names); err != nil {
		return nil, nil, nil, err
	}
	products := []system.Product{system.Sqlbrain} // its bench is the client
	for _, s := range systems {
		products = append(products, s.Product)
	}
	fmt.Fprintln(os.Stderr, "building what is compared …")
	if err := programs.Build(ctx, p.module, p.programs, products...); err != nil {
		return nil, nil, nil, err
	}
	for _, s := range systems {
		if err := programs.Lacks(s); err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", s.Name(), err)
		}
	}
	dir, err := os.MkdirTemp(p.data, "sqlbrain-bench-")
	if err != nil {
		return nil, nil, nil, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o755); err != nil { // the databases' user passes through
		return nil, nil, nil, errors.Join(err, remove())
	}
	return &system.Environment{Programs: programs, Dir: dir, RedoLog: p.redoLog, OneCore: p.oneCore}, systems, remove, nil
}

func newRunCommand() *cobra.Command {
	var p place
	var quick, resume bool
	rounds := 3
	var duration time.Duration
	var only []string
	cmd := &cobra.Command{
		Use: "run", Short: "The same workloads on each system, several rounds", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := plan.Full
			if quick {
				options = plan.Quick
			}
			if duration > 0 {
				options.Duration = duration
			}
			return runAll(cmd.Context(), &p, options, rounds, only, resume)
		},
	}
	p.register(cmd)
	f := cmd.Flags()
	f.BoolVar(&quick, "quick", false, "fewer and shorter figures: for a look, not for conclusions")
	f.BoolVar(&resume, "resume", false, "go on with what is in --out, if it is of the same programs and options")
	f.IntVar(&rounds, "rounds", rounds, "rounds")
	f.DurationVar(&duration, "duration", 0, "of a figure (default 5s, with --quick 2s)")
	f.StringSliceVar(&only, "only", nil, "workloads to run (default all)")
	return cmd
}

func runAll(ctx context.Context, p *place, options plan.Options, rounds int, only []string, resume bool) error {
	p.name = resultsName
	file, err := measureAll(ctx, p, options, rounds, only, resume)
	if err != nil {
		return err
	}
	return writePage(p.out, p.name, file, report.Plots, report.Page)
}

// measureAll returns what it found, which is also in a file of p.out.
func measureAll(ctx context.Context, p *place, options plan.Options, rounds int, only []string, resume bool) (file *result.File, err error) {
	env, systems, remove, err := p.environment(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	path := filepath.Join(p.out, p.name+".json")
	if file, err = begin(path, env, options, resume); err != nil {
		return nil, err
	}
	file.Rounds, file.Systems = rounds, nil
	for _, s := range systems {
		file.Systems = append(file.Systems, s.Name())
	}
	cfg := compare.Config{
		Environment: env, Systems: systems, Options: options, Rounds: rounds, Only: only, Progress: os.Stderr,
		Save: func() error { return result.Write(path, file) },
	}
	return file, compare.Run(ctx, cfg, file)
}

// begin returns an empty file, or the one to go on with.
func begin(path string, env *system.Environment, options plan.Options, resume bool) (*result.File, error) {
	versions := env.Programs.Versions()
	if resume {
		old, err := result.Read[result.File](path)
		if err != nil {
			return nil, err
		}
		if old != nil && !old.Continues(versions, options) {
			return nil, fmt.Errorf("%s is of other programs or options: start anew without --resume\nit has %v %+v\nthis is %v %+v",
				path, old.Versions, old.Options, versions, options)
		}
		if old != nil {
			return old, nil
		}
	}
	m, err := machine.Look(env.Dir)
	if err != nil {
		return nil, err
	}
	return &result.File{Started: time.Now().UTC(), Machine: m, Versions: versions, Options: options}, nil
}

func newReportCommand() *cobra.Command {
	var p place
	cmd := &cobra.Command{
		Use: "report", Short: "Write the page and the plots again from what was measured", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			results, err := again(&p, resultsName, report.Plots, report.Page)
			sizes, err2 := again(&p, growthName, report.GrowthPlots, report.GrowthPage)
			scores, err3 := again(&p, scoreboardName, report.ScoreboardPlots, report.Scoreboard)
			if !results && !sizes && !scores {
				return fmt.Errorf("there are no results in %s", p.out)
			}
			return errors.Join(err, err2, err3)
		},
	}
	p.register(cmd)
	return cmd
}

// again writes a page from the results of that name, if there are some.
func again[F any](p *place, name string, draw func(*F, string) ([]string, error), page func(*F, []string) string) (found bool, err error) {
	file, err := result.Read[F](filepath.Join(p.out, name+".json"))
	if err != nil || file == nil {
		return err != nil, err
	}
	return true, writePage(p.out, name, file, draw, page)
}

// writePage draws what was measured, and writes the page about it.
func writePage[F any](out, name string, file *F, draw func(*F, string) ([]string, error), page func(*F, []string) string) error {
	plots, err := draw(file, out)
	if err != nil {
		return err
	}
	path := filepath.Join(out, name+".md")
	if err := os.WriteFile(path, []byte(page(file, plots)), 0o644); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "written:", path)
	return nil
}
