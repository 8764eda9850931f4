package compare

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/machine"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
	"github.com/sqlbrain/sqlbrain/integration/internal/workload"
)

// workloadWait bounds a workload in addition to its duration: loading and checking on a slow system.
const workloadWait = 10 * time.Minute

// measure runs a step, which continues with the objects of after, and fills in what came of it.
func measure(ctx context.Context, r *system.Running, step plan.Step, after *workload.Report,
	f *result.Figure) *workload.Report {
	ctx, cancel := context.WithTimeout(ctx, workloadWait)
	defer cancel()
	f.Load = machine.Load()
	f.Status = result.OK
	cfg := step.Config
	r.Configure(&cfg)
	cfg.After = after
	rep, err := workload.Run(ctx, cfg)
	if rep != nil {
		fill(f, rep, r, step)
	}
	switch {
	case rep != nil && f.Bad > 0:
		f.Status, f.Reason = result.Wrong, fmt.Sprintf("%d of %d answers and events were wrong, the first: %s", f.Bad,
			f.Answers+f.Events, rep.Verification.Failures[0])
	case err != nil:
		f.Status, f.Reason = result.Failed, err.Error()
	case !step.Prepares && f.Succeeded == 0:
		f.Status, f.Reason = result.Failed, "nothing was measured"
	}
	return rep
}

func fill(f *result.Figure, rep *workload.Report, r *system.Running, step plan.Step) {
	v := rep.Verification
	f.Answers, f.Events, f.Missing, f.Bad = v.Answers, v.Events, v.Missing, v.Failed
	f.Unexpected, f.Different = v.Unexpected, v.Different
	for _, p := range rep.Phases {
		if step.Workload == "churn" && p.Name == "watch" && len(p.Ops) > 0 {
			f.LagP50, f.LagP99 = p.Ops[0].Latency.P50, p.Ops[0].Latency.P99
		}
		var measured []workload.OpReport
		for _, o := range p.Ops {
			if p.Name == step.Phase && (step.Op == "" || o.Name == step.Op) {
				measured = append(measured, o)
			}
		}
		// For watches, the usage is reported with the writes that run at the same time.
		watched := step.Workload == "watch-latency" && p.Name == "update"
		if len(measured) > 0 && !watched {
			add(f, measured, p.Seconds)
		}
		if (len(measured) > 0 || watched) && p.Client != nil {
			u := r.UsageOf(&p)
			f.ClientCPU, f.ServerCPU, f.DatabaseCPU = u.ClientCPU, u.ServerCPU, u.DatabaseCPU
			f.ServerRSS, f.DatabaseRSS = u.ServerRSS, u.DatabaseRSS
		}
	}
}

func add(f *result.Figure, ops []workload.OpReport, seconds float64) {
	f.Seconds = seconds
	var keys int64
	// Of several kinds of requests, the latency is that of the most frequent one.
	most := slices.MaxFunc(ops, func(a, b workload.OpReport) int { return int(a.Succeeded - b.Succeeded) })
	f.P50, f.P90, f.P99, f.P999 = most.Latency.P50, most.Latency.P90, most.Latency.P99, most.Latency.P999
	for _, o := range ops {
		f.Succeeded += o.Succeeded
		f.Errors += o.Failed
		f.PerSecond += o.PerSecond
		keys += o.Keys
	}
	if seconds > 0 {
		f.Keys = float64(keys) / seconds
	}
}
