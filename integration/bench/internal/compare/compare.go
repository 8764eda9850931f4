package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
)

// Config says what to run.
type Config struct {
	Environment *system.Environment
	Systems     []system.System
	Options     plan.Options
	Rounds      int
	Only        []string // names of workloads; empty: all
	Progress    io.Writer
	// Save is called after each figure.
	Save func() error
}

// Run adds what file lacks. A workload that fails, or a system that does not start,
// is noted as such, and the others are run. It returns an error only if it cannot go on.
func Run(ctx context.Context, cfg Config, file *result.File) error {
	for round := range cfg.Rounds {
		for i := range cfg.Systems {
			s := cfg.Systems[(i+round)%len(cfg.Systems)]
			if err := cfg.suite(ctx, s, round, file); err != nil {
				return err
			}
		}
	}
	return nil
}

// suite runs a round of a system, unless file has it.
func (cfg *Config) suite(ctx context.Context, s system.System, round int, file *result.File) (err error) {
	steps := cfg.missing(s, round, file)
	if len(steps) == 0 {
		return ctx.Err()
	}
	cfg.tell("round %d of %d: %s", round+1, cfg.Rounds, s.Name())
	running, err := cfg.Environment.Start(ctx, s)
	if running != nil {
		defer func() { err = errors.Join(err, running.Close()) }()
	}
	unstarted := err
	broken := map[string]string{}            // steps that failed, and why
	reports := map[string]*workload.Report{} // of the others
	for _, step := range steps {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f := result.Figure{System: s.Name(), Round: round, Cell: step.Cell, Started: time.Now().UTC()}
		switch {
		case plan.Unsupported(s.Product, step.Workload) != "":
			f.Status, f.Reason = result.Unsupported, plan.Unsupported(s.Product, step.Workload)
		case unstarted != nil:
			f.Status, f.Reason = result.Failed, "it did not start: "+unstarted.Error()
		case running.Ended() != nil:
			f.Status, f.Reason = result.Failed, running.Ended().Error()
		case broken[step.Needs] != "":
			f.Status, f.Reason = result.Failed, step.Needs+" failed: "+broken[step.Needs]
		default:
			reports[step.ID] = measure(ctx, running, step, reports[step.Needs], &f)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f.Status == result.Failed {
			broken[step.ID] = f.Reason
		}
		cfg.tell("  %s", describe(&f))
		if step.Prepares {
			continue
		}
		file.Add(f)
		if err := cfg.Save(); err != nil {
			return err
		}
	}
	return nil
}

// missing are the steps of a round that are to be run: those that file has not, and
// those that they need.
func (cfg *Config) missing(s system.System, round int, file *result.File) []plan.Step {
	steps := cfg.Options.Steps()
	wanted := map[string]bool{}
	for _, step := range slices.Backward(steps) { // what is needed comes before
		chosen := len(cfg.Only) == 0 || slices.Contains(cfg.Only, step.Workload)
		if !step.Prepares && chosen && !file.Has(s.Name(), round, step.ID) {
			wanted[step.ID] = true
		}
		if wanted[step.ID] && step.Needs != "" {
			wanted[step.Needs] = true
		}
	}
	return slices.DeleteFunc(steps, func(step plan.Step) bool { return !wanted[step.ID] })
}

func (cfg *Config) tell(format string, args ...any) {
	// Progress is informational; a failed write is ignored.
	_, _ = fmt.Fprintf(cfg.Progress, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

func describe(f *result.Figure) string {
	line := fmt.Sprintf("%-20s", f.ID)
	if f.Succeeded > 0 {
		line += fmt.Sprintf(" %9.0f/s  p50 %8.2f ms  p99 %8.2f ms  CPU µs: server %.0f database %.0f client %.0f",
			f.PerSecond, f.P50, f.P99, f.ServerCPU, f.DatabaseCPU, f.ClientCPU)
	}
	if f.Status != result.OK {
		line += fmt.Sprintf("  %s: %.200s", f.Status, f.Reason)
	}
	return line
}
