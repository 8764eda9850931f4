package workload

import (
	"fmt"
	"sync"
	"time"
)

// showProgress prints a line each second until the returned function is called.
func (r *runner) showProgress() (stop func()) {
	if r.cfg.Progress == nil {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var shown *phase
		var steps int64
		var at time.Time
		for {
			select {
			case <-done:
				return
			case now := <-tick.C:
				p := r.current()
				if p == nil {
					continue
				}
				if p != shown {
					shown, steps, at = p, 0, p.started
				}
				n := p.steps.Load()
				perSecond := float64(n-steps) / max(now.Sub(at).Seconds(), 1e-3)
				steps, at = n, now
				// Losing a progress line does no harm.
				_, _ = fmt.Fprintln(r.cfg.Progress, progressLine(p, n, perSecond, r.verify.failed.Load()))
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// progressLine describes the progress of p: n steps are done, perSecond of them since the last line.
func progressLine(p *phase, n int64, perSecond float64, wrong int64) string {
	line := fmt.Sprintf("%s  %d", p.name, n)
	if p.goal > 0 {
		line += fmt.Sprintf("/%d", p.goal)
	}
	line += fmt.Sprintf("  %.0f/s  errors %d", perSecond, p.errs.Load())
	if wrong > 0 {
		line += fmt.Sprintf("  WRONG ANSWERS %d", wrong)
	}
	return line
}
