// Package runner simulates many seeds in several processes, repeats a seed exactly, and shrinks the plan of one that fails.
// The processes run package plans, built with the overlay of package deterministic.
package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/simulation"
	"github.com/sqlbrain/sqlbrain/integration/simulation/deterministic/overlay"
)

// PlanTime is for how long, in real time, a plan may run. A goroutine that sleeps while another one waits for its lock
// stops the bubble's clock for ever.
const PlanTime = 3 * time.Minute

// Build builds the program that simulates, with the files that overlays replace. The working directory must be in the
// module of this package.
func Build(ctx context.Context, binary string, overlays ...string) error {
	return overlay.BuildTest(ctx, "github.com/sqlbrain/sqlbrain/integration/simulation/plans", binary, overlays...)
}

// process simulates one plan after the other. Not safe for concurrent use.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // of its output
	ended  error       // after lines is closed
	recent []string    // output that is no result
}

func start(ctx context.Context, binary string) (*process, error) {
	cmd := exec.CommandContext(ctx, binary, "-test.run=^TestPlans$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), simulation.OrdersVariable+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	write.Close()
	if err != nil {
		read.Close()
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin, lines: make(chan string)}
	go func() {
		defer close(p.lines)
		defer read.Close()
		r := bufio.NewReader(read)
		for {
			line, err := r.ReadString('\n')
			if line != "" {
				p.lines <- strings.TrimSuffix(line, "\n")
			}
			if err != nil {
				break
			}
		}
		p.ended = cmd.Wait()
	}()
	return p, nil
}

// errEnded means that the process has ended, and cannot run more plans.
var errEnded = errors.New("the process ended")

// run simulates a plan. A process that crashed or hung gives an outcome and errEnded.
func (p *process) run(o simulation.Order) (simulation.Outcome, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return simulation.Outcome{}, err
	}
	p.recent = nil
	if _, err := p.stdin.Write(append(b, '\n')); err != nil {
		// The process has ended; its output says why.
		p.recent = append(p.recent, err.Error())
	}
	hang := time.AfterFunc(PlanTime, func() { _ = p.cmd.Process.Signal(syscall.SIGQUIT) })
	defer hang.Stop()
	for line := range p.lines {
		s, ok := strings.CutPrefix(line, "result ")
		if !ok {
			// The first lines of a crash matter most.
			if line != "" && len(p.recent) < 2000 {
				p.recent = append(p.recent, line)
			}
			continue
		}
		var out simulation.Outcome
		if err := json.Unmarshal([]byte(s), &out); err != nil {
			return out, err
		}
		if len(out.Violations) > 0 {
			out.Violations = append(out.Violations, p.recent...)
		}
		return out, nil
	}
	return simulation.Outcome{Violations: append([]string{fmt.Sprintf("the process ended: %v", p.ended)}, p.recent...)}, errEnded
}

// stop ends the process.
func (p *process) stop() {
	p.stdin.Close()
	_ = p.cmd.Process.Kill()
	for range p.lines {
	}
}

// batch is how many seeds a process simulates. What one seed leaves behind can reach only the seeds of its batch.
const batch = 50

// Report is the outcome of a seed.
type Report struct {
	Seed  uint64
	Batch uint64 // the first seed of the process
	Took  time.Duration
	simulation.Outcome
}

// Seeds simulates count seeds, starting with first, in so many processes at a time, and passes each outcome to report, one
// at a time. It ends early without an error when ctx ends, or when report has returned false and the seeds under way are
// reported, so that one that hangs is.
func Seeds(ctx context.Context, binary string, first, count uint64, processes int, report func(Report) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	var failed error
	enough := false
	next, end := first, first+count
	for range processes {
		all.Go(func() {
			for {
				mu.Lock()
				from := next
				next = min(next+batch, end)
				to := next
				done := from == to || ctx.Err() != nil || enough
				mu.Unlock()
				if done {
					return
				}
				err := seeds(ctx, binary, from, to, func(r Report) bool {
					mu.Lock()
					defer mu.Unlock()
					if ctx.Err() == nil && !report(r) {
						enough = true
					}
					return ctx.Err() == nil && !enough
				})
				if errors.Is(err, errEnough) {
					return
				}
				if err != nil {
					mu.Lock()
					if ctx.Err() == nil {
						failed = err
					}
					mu.Unlock()
					cancel()
					return
				}
			}
		})
	}
	all.Wait()
	return failed
}

var errEnough = errors.New("enough")

func seeds(ctx context.Context, binary string, from, to uint64, report func(Report) bool) error {
	p, err := start(ctx, binary)
	if err != nil {
		return err
	}
	defer func() { p.stop() }()
	head := from
	for seed := from; seed < to; seed++ {
		began := time.Now()
		out, err := p.run(simulation.Order{Plan: simulation.NewPlan(seed)})
		if err != nil && !errors.Is(err, errEnded) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !report(Report{Seed: seed, Batch: head, Took: time.Since(began), Outcome: out}) {
			return errEnough
		}
		if err != nil && seed+1 < to {
			p.stop()
			if p, err = start(ctx, binary); err != nil {
				return err
			}
			head = seed + 1
		}
	}
	return nil
}

// Repeat simulates plans one after the other in a new process, and returns the outcome of the last one with its trace.
func Repeat(ctx context.Context, binary string, plans ...simulation.Plan) (simulation.Outcome, error) {
	p, err := start(ctx, binary)
	if err != nil {
		return simulation.Outcome{}, err
	}
	defer p.stop()
	var out simulation.Outcome
	for i, plan := range plans {
		out, err = p.run(simulation.Order{Plan: plan, Trace: i == len(plans)-1})
		if err != nil {
			break
		}
	}
	if errors.Is(err, errEnded) {
		err = nil
	}
	return out, err
}

// Shrink returns a smaller plan that fails too, and its outcome. It removes faults, shortens them, makes the workload
// smaller and the plan shorter, and leaves requests out, as long as the plan fails. Every change also changes the order of goroutines, so each
// smaller plan is tried with several seeds. It returns the smallest plan so far when ctx ends.
func Shrink(ctx context.Context, binary string, plan simulation.Plan, log func(string)) (simulation.Plan, simulation.Outcome, error) {
	var p *process
	defer func() {
		if p != nil {
			p.stop()
		}
	}()
	fails := func(plan simulation.Plan) (simulation.Plan, simulation.Outcome, error) {
		for i := range uint64(tries) {
			candidate := plan
			candidate.Seed += i << 40
			if p == nil {
				var err error
				if p, err = start(ctx, binary); err != nil {
					return plan, simulation.Outcome{}, err
				}
			}
			out, err := p.run(simulation.Order{Plan: candidate})
			if ctx.Err() != nil {
				return plan, simulation.Outcome{}, nil
			}
			if errors.Is(err, errEnded) {
				p.stop()
				p = nil
			} else if err != nil {
				return plan, simulation.Outcome{}, err
			}
			if len(out.Violations) > 0 {
				return candidate, out, nil
			}
		}
		return plan, simulation.Outcome{}, nil
	}
	plan, err := shrink(plan, fails, log)
	if err != nil {
		return plan, simulation.Outcome{}, err
	}
	// ctx may have ended, and the plan must be known to fail in a new process.
	out, err := Repeat(context.WithoutCancel(ctx), binary, plan)
	return plan, out, err
}

// tries is with how many seeds a smaller plan is tried.
const tries = 3

// shrink returns the smallest plan for which fails returns violations, and the plan that has them.
func shrink(plan simulation.Plan, fails func(simulation.Plan) (simulation.Plan, simulation.Outcome, error), log func(string)) (simulation.Plan, error) {
	var requests map[string]int // of the smallest plan
	try := func(smaller simulation.Plan) (bool, error) {
		failing, out, err := fails(smaller)
		ok := len(out.Violations) > 0
		if ok {
			plan, requests = failing, out.Requests
			log(fmt.Sprintf("%d faults, %v, %+v, %d spans of requests left out", len(plan.Faults), plan.Duration, plan.Workload, len(plan.Skips)))
		}
		return ok, err
	}
	// Faults: half of them, a quarter, and so on, down to each alone.
	for size := (len(plan.Faults) + 1) / 2; size > 0; size /= 2 {
		for at := 0; at < len(plan.Faults); {
			smaller := plan
			smaller.Faults = slices.Delete(slices.Clone(plan.Faults), at, min(at+size, len(plan.Faults)))
			ok, err := try(smaller)
			if err != nil {
				return plan, err
			}
			if !ok {
				at += size
			}
		}
	}
	for again := true; again; {
		again = false
		for _, change := range changes {
			smaller := plan
			smaller.Faults = slices.Clone(plan.Faults)
			if !change(&smaller) {
				continue
			}
			ok, err := try(smaller)
			if err != nil {
				return plan, err
			}
			again = again || ok
		}
	}
	if requests == nil { // nothing was changed so far
		if _, err := try(plan); err != nil {
			return plan, err
		}
	}
	// Requests: all of a client, half of them, a quarter, and so on, down to each alone.
	for _, client := range slices.Sorted(maps.Keys(requests)) {
		count := requests[client]
		for size := count; size > 0; size /= 2 {
			for at := 0; at < count; at += size {
				skips, changed := without(plan.Skips, simulation.Skip{Client: client, From: at, To: min(at+size, count)})
				if !changed {
					continue
				}
				smaller := plan
				smaller.Skips = skips
				if _, err := try(smaller); err != nil {
					return plan, err
				}
			}
		}
	}
	return plan, nil
}

// without adds s to skips, and joins what it touches. It returns false if skips have all of it.
func without(skips []simulation.Skip, s simulation.Skip) (all []simulation.Skip, changed bool) {
	for _, other := range skips {
		switch {
		case other.Client != s.Client || other.To < s.From || s.To < other.From:
			all = append(all, other)
		case other.From <= s.From && s.To <= other.To:
			return skips, false
		default:
			s.From, s.To = min(s.From, other.From), max(s.To, other.To)
		}
	}
	return append(all, s), true
}

// changes make a plan smaller. They return false if they cannot.
var changes = []func(*simulation.Plan) bool{
	func(p *simulation.Plan) bool { return less(&p.Workload.Leases, 0) },
	func(p *simulation.Plan) bool { return less(&p.Workload.Watchers, 0) },
	func(p *simulation.Plan) bool { return less(&p.Workload.Clients, 1) },
	func(p *simulation.Plan) bool { return less(&p.Workload.Keys, 1) },
	func(p *simulation.Plan) bool {
		had := p.Workload.Compact != 0
		p.Workload.Compact = 0
		return had
	},
	func(p *simulation.Plan) bool {
		// Half of the time, with the faults that begin in it.
		p.Duration /= 2
		p.Faults = slices.DeleteFunc(p.Faults, func(f simulation.Fault) bool { return f.At >= p.Duration })
		for i := range p.Faults {
			p.Faults[i].For = min(p.Faults[i].For, p.Duration-p.Faults[i].At)
		}
		return p.Duration >= 500*time.Millisecond
	},
	func(p *simulation.Plan) bool {
		// Everything earlier.
		if len(p.Faults) == 0 || p.Faults[0].At < 100*time.Millisecond {
			return false
		}
		by := p.Faults[0].At - p.Faults[0].At/2
		for i := range p.Faults {
			p.Faults[i].At -= by
		}
		p.Duration -= by
		return true
	},
}

func less(n *int, least int) bool {
	if *n <= least {
		return false
	}
	*n = max(*n/2, least)
	return true
}
