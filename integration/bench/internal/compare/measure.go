package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/machine"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/process"
)

// Bounds of a workload in addition to its duration: loading and checking on a slow system.
const (
	workloadWait = 10 * time.Minute
	requestTime  = "20s"
	retryTime    = "30s"
	endWait      = 10 * time.Second
)

// report is what is read of sqlbrain bench's.
type report struct {
	Phases []struct {
		Name    string
		Seconds float64
		Ops     []op
		Client  *usage
		Server  []usage
	}
	Verification struct {
		Answers, Events, Failed int64
		Missing                 int64 `json:"events_missing"`
		Unexpected              int64 `json:"events_unexpected"`
		Different               int64 `json:"events_different"`
		Failures                []string
	}
}

type op struct {
	Name              string
	Succeeded, Failed int64
	Keys              int64
	PerSecond         float64 `json:"per_second"`
	Latency           struct {
		P50, P90, P99 float64
		P999          float64 `json:"p99.9"`
	} `json:"latency_ms"`
}

type usage struct {
	ID         int
	CPUSeconds float64 `json:"cpu_seconds"`
	RSSBytes   int64   `json:"rss_bytes"`
}

// measure runs a step and fills in what came of it.
func measure(ctx context.Context, env *system.Environment, r *system.Running, step plan.Step, f *result.Figure) {
	f.Load = machine.Load()
	f.Status = result.OK
	rep, err := bench(ctx, env, r, step)
	if rep != nil {
		fill(f, rep, r, step)
	}
	switch {
	case rep != nil && f.Bad > 0:
		f.Status, f.Reason = result.Wrong, fmt.Sprintf("%d of %d answers and events were wrong, the first: %s", f.Bad, f.Answers+f.Events, rep.Verification.Failures[0])
	case err != nil:
		f.Status, f.Reason = result.Failed, err.Error()
	case !step.Prepares && f.Succeeded == 0:
		f.Status, f.Reason = result.Failed, "nothing was measured"
	}
}

// bench runs sqlbrain bench. The report is nil if there is none.
func bench(ctx context.Context, env *system.Environment, r *system.Running, step plan.Step) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, workloadWait)
	defer cancel()
	args := append([]string{"bench"}, step.Args...)
	args = append(args, "--output", "json", "--endpoints", r.Endpoint(0), "--timeout", requestTime, "--retry-for", retryTime)
	ids := ""
	for _, id := range r.Processes() {
		ids += "," + strconv.Itoa(id)
	}
	args = append(args, "--processes", strings.TrimPrefix(ids, ","))
	if r.System.Product == system.Kine {
		args = append(args, "--no-versions")
	}
	var out, complaints bytes.Buffer
	program, args := env.OnClientCore(env.Programs.Sqlbrain, args)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endWait
	err := process.Run(cmd, nil)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("it did not end: %w", ctx.Err())
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(complaints.String()), "\n")
		err = errors.New(lines[len(lines)-1])
	}
	if out.Len() == 0 {
		return nil, err
	}
	var rep report
	if parse := json.Unmarshal(out.Bytes(), &rep); parse != nil {
		return nil, errors.Join(err, parse)
	}
	return &rep, err
}

func fill(f *result.Figure, rep *report, r *system.Running, step plan.Step) {
	v := rep.Verification
	f.Answers, f.Events, f.Missing, f.Bad = v.Answers, v.Events, v.Missing, v.Failed
	f.Unexpected, f.Different = v.Unexpected, v.Different
	for _, p := range rep.Phases {
		if step.Workload == "churn" && p.Name == "watch" && len(p.Ops) > 0 {
			f.LagP50, f.LagP99 = p.Ops[0].Latency.P50, p.Ops[0].Latency.P99
		}
		var measured []op
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
			use(f, p.Client, p.Server, p.Ops, r)
		}
	}
}

func add(f *result.Figure, ops []op, seconds float64) {
	f.Seconds = seconds
	var keys int64
	// Of several kinds of requests, the latency is that of the most frequent one.
	most := slices.MaxFunc(ops, func(a, b op) int { return int(a.Succeeded - b.Succeeded) })
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

// use sets the resources that each operation of a phase used.
func use(f *result.Figure, client *usage, server []usage, ops []op, r *system.Running) {
	var n int64
	for _, o := range ops {
		n += o.Succeeded
	}
	each := func(u usage) float64 { return u.CPUSeconds / float64(max(n, 1)) * 1e6 }
	f.ClientCPU = each(*client)
	for _, u := range server {
		if u.ID == r.Database() {
			f.DatabaseCPU, f.DatabaseRSS = each(u), u.RSSBytes
		} else {
			f.ServerCPU, f.ServerRSS = each(u), u.RSSBytes
		}
	}
}
