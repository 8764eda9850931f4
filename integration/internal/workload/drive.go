package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// worker sends one request at a time. One goroutine uses it.
type worker struct {
	r      *runner
	p      *phase
	client *clientv3.Client
	rand   *rand.Rand
	due    time.Time // when the next request should be sent; zero: now
}

func (r *runner) worker(p *phase, i int) *worker {
	return &worker{
		r: r, p: p, client: r.clients[i%len(r.clients)],
		rand: rand.New(rand.NewPCG(r.cfg.Seed, uint64(i))),
	}
}

// begin starts a phase of so many steps; 0: not known.
func (r *runner) begin(name string, goal int64) *phase {
	p := &phase{name: name, goal: goal, before: r.cfg.usages(), started: time.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phases = append(r.phases, p)
	return p
}

func (r *runner) end(p *phase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.elapsed = time.Since(p.started)
	p.after = r.cfg.usages()
}

// measured runs step as the configuration says: for so long or so many times, at least once,
// at most limit times (0: no limit), at the rate.
func (r *runner) measured(ctx context.Context, name string, limit int64,
	step func(context.Context, *worker, int64) error) {
	total := r.cfg.Total
	if limit > 0 && (total == 0 || limit < total) {
		total = limit
	}
	p := r.begin(name, total)
	if r.cfg.Duration > 0 {
		p.until = p.started.Add(r.cfg.Duration)
	}
	if r.cfg.Rate > 0 {
		r.pace = &pacer{start: p.started, rate: r.cfg.Rate}
	}
	r.drive(ctx, p, step)
	r.pace = nil
	r.end(p)
}

// loaded runs step n times, as fast as answers come.
func (r *runner) loaded(ctx context.Context, name string, n int, step func(context.Context, *worker, int64) error) {
	if n == 0 {
		return
	}
	p := r.begin(name, int64(n))
	r.drive(ctx, p, step)
	r.end(p)
}

// drive lets all clients run steps 0, 1, … until the phase's goal, its end or
// ctx's. A step returns an error, which it has recorded, if it did not succeed;
// the worker then pauses, longer after each further failure.
func (r *runner) drive(ctx context.Context, p *phase, step func(context.Context, *worker, int64) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for i := range r.cfg.Clients {
		wg.Go(func() {
			w := r.worker(p, i)
			failures := 0
			for ctx.Err() == nil {
				n := next.Add(1) - 1
				if p.goal > 0 && n >= p.goal {
					return
				}
				if r.pace != nil {
					w.due = r.pace.slot(n)
					if !p.until.IsZero() && w.due.After(p.until) {
						return
					}
					if retry.Sleep(ctx, time.Until(w.due)) != nil {
						return
					}
				}
				if n > 0 && !p.until.IsZero() && time.Now().After(p.until) {
					return
				}
				err := step(ctx, w, n)
				p.steps.Add(1)
				if err == nil {
					failures = 0
					continue
				}
				// All steps would take as long to fail as this one did.
				if silence := time.Since(time.Unix(0, r.alive.Load())); silence > r.cfg.RetryFor {
					r.abort(fmt.Errorf("%w for %v: %w", ErrGone, silence.Round(time.Second), err))
					return
				}
				failures++
				if pauses.Wait(ctx, failures) != nil {
					return
				}
			}
		})
	}
	wg.Wait()
}

// pacer spreads steps evenly.
type pacer struct {
	start time.Time
	rate  float64
}

func (p *pacer) slot(n int64) time.Time {
	return p.start.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
}

// pauses spaces out attempts at what failed.
var pauses = retry.Backoff{Min: 10 * time.Millisecond, Max: time.Second}
