package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/compare"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/machine"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/report"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
)

// place are the flags that all commands that compare systems share.
type place struct {
	out      string
	programs string
	module   string
	data     string
	systems  []string
	database []string // see system.Environment
	redoLog  int64    // of databases, see system.Environment
}

func (p *place) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.out, "out", published, "directory of the results and the page")
	f.StringVar(&p.programs, "programs", "../../bin/bench", "directory of the programs that are built")
	f.StringVar(&p.module, "module", ".", `directory of this module; "": the programs are there, and are not built`)
	f.StringVar(&p.data, "data", os.TempDir(), "directory of the data, which is removed: its disk is measured")
	f.StringSliceVar(&p.database, "database-args", nil, "further arguments of MySQL and MariaDB, such as --sync-binlog=0")
	f.StringSliceVar(&p.systems, "systems", nil,
		"what to compare (default etcd, and sqlbrain and kine on SQLite and on MySQL, or on MariaDB where there is no "+
			"MySQL, and on TiDB where SQLBRAIN_TEST_TIDB_URL names one)")
}

// environment builds what is needed for the systems. The caller calls undo when
// it is done.
func (p *place) environment(ctx context.Context) (env *system.Environment, systems []system.System, undo func() error,
	err error) {
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
		if programs.TiDB != "" {
			names = append(names, "sqlbrain-tidb", "kine-tidb")
		}
	}
	if systems, err = system.Parse(names); err != nil {
		return nil, nil, nil, err
	}
	var products []system.Product
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
	undo = func() error { return os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o755); err != nil { // the databases' user passes through
		return nil, nil, nil, errors.Join(err, undo())
	}
	return &system.Environment{Programs: programs, Dir: dir, RedoLog: p.redoLog, Database: p.database}, systems, undo, nil
}

// inTurn measures each system, round by round, and writes the page, which is made of the conditions. Without --systems
// they are etcd and sqlbrain on SQLite.
func (p *place) inTurn(ctx context.Context, name string, rounds int,
	measure func(*system.Environment, system.System) error,
	page func(systems []system.System, conditions string) string) (err error) {
	if len(p.systems) == 0 {
		p.systems = []string{"etcd", "sqlbrain-sqlite"} // kine lacks most of what is measured
	}
	env, systems, undo, err := p.environment(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, undo()) }()
	file := &result.File{Started: time.Now(), Versions: env.Programs.Versions()}
	if file.Machine, err = machine.Look(env.Dir); err != nil {
		return err
	}
	for round := range rounds {
		for i := range systems {
			s := systems[(i+round)%len(systems)]
			if err := measure(env, s); err != nil {
				return fmt.Errorf("%s: %w", s.Name(), err)
			}
		}
	}
	return writePage(p.out, name, file, func(f *result.File) string { return page(systems, report.Conditions(f)) })
}

// comparison is a plan that is run on each system, several rounds, and a page about it. The results are in a JSON
// file next to the page.
type comparison struct {
	name, short string
	options     plan.Options
	only        []string // workloads; none: all
	page        func(f *result.File) string
}

var (
	results = comparison{name: "results", short: "The same workloads on each system", options: plan.Full,
		page: report.Page}
	scoreboard = comparison{
		name: "scoreboard", short: "Errors, events delivered and delays while objects come and go", options: plan.Scoreboard,
		page: report.Scoreboard,
	}
)

func (c comparison) command() *cobra.Command {
	var p place
	var quick, resume bool
	var duration time.Duration
	var clients []int
	rounds := 3
	cmd := &cobra.Command{
		Use: c.name, Short: c.short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if quick {
				c.options = plan.Quick
			}
			if duration > 0 {
				c.options.Duration = duration
			}
			if len(clients) > 0 {
				c.options.Clients = clients
			}
			return c.run(cmd.Context(), &p, rounds, resume)
		},
	}
	p.register(cmd)
	f := cmd.Flags()
	f.BoolVar(&resume, "resume", false, "go on with what is in --out, if it is of the same programs and options")
	f.IntVar(&rounds, "rounds", rounds, "rounds")
	f.DurationVar(&duration, "duration", 0, "of a figure (default of the plan)")
	f.StringSliceVar(&c.only, "only", c.only, "workloads to run (default all)")
	switch c.name {
	case results.name:
		f.BoolVar(&quick, "quick", false, "fewer and shorter figures: for a look, not for conclusions")
		f.IntSliceVar(&clients, "clients", nil, "numbers of clients of most workloads (default of the plan)")
	case scoreboard.name:
		f.IntSliceVar(&c.options.Churn, "clients", c.options.Churn, "numbers of clients")
		f.IntSliceVar(&c.options.Watchers, "watchers", c.options.Watchers, "watchers of everything")
		f.IntVar(&c.options.Keys, "keys", c.options.Keys, "objects that come and go")
	}
	return cmd
}

// run writes what it measures into a file of p.out, and then the page.
func (c comparison) run(ctx context.Context, p *place, rounds int, resume bool) (err error) {
	env, systems, undo, err := p.environment(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, undo()) }()
	path := filepath.Join(p.out, c.name+".json")
	file, err := begin(path, env, c.options, resume)
	if err != nil {
		return err
	}
	file.Rounds, file.Systems = rounds, nil
	for _, s := range systems {
		file.Systems = append(file.Systems, s.Name())
	}
	cfg := compare.Config{
		Environment: env, Systems: systems, Options: c.options, Rounds: rounds, Only: c.only, Progress: os.Stderr,
		Save: func() error { return result.Write(path, file) },
	}
	if err := compare.Run(ctx, cfg, file); err != nil {
		return err
	}
	return writePage(p.out, c.name, file, c.page)
}

// begin returns an empty file, or the one to go on with.
func begin(path string, env *system.Environment, options plan.Options, resume bool) (*result.File, error) {
	versions := env.Programs.Versions()
	if resume {
		old, err := result.Read(path)
		if err != nil {
			return nil, err
		}
		if old != nil {
			return old, old.Continue(versions, options)
		}
	}
	m, err := machine.Look(env.Dir)
	if err != nil {
		return nil, err
	}
	return &result.File{Started: time.Now().UTC(), Machine: m, Versions: versions, Options: options}, nil
}

func newReportCommand() *cobra.Command {
	return &cobra.Command{
		Use: "report", Short: "Write the pages and quoted figures of docs again from what was measured", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.Join(again(results.name, results.page), again(scoreboard.name, scoreboard.page),
				quoteAll())
		},
	}
}

// again writes a page from the results of that name, if there are some.
func again(name string, page func(*result.File) string) error {
	file, err := result.Read(filepath.Join(published, name+".json"))
	if err != nil || file == nil {
		return err
	}
	return writePage(published, name, file, page)
}

// writePage writes the page about what was measured.
func writePage(out, name string, file *result.File, page func(*result.File) string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	path := filepath.Join(out, name+".md")
	if err := os.WriteFile(path, []byte(page(file)), 0o644); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "written:", path)
	return nil
}
