package bench

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Intervals between progress lines.
const (
	terminalInterval = 500 * time.Millisecond
	plainInterval    = 5 * time.Second
)

// showProgress prints lines until the returned function is called.
func (r *runner) showProgress() (stop func()) {
	out := r.cfg.Progress
	if out == nil {
		return func() {}
	}
	interval := plainInterval
	if r.cfg.ProgressTerminal {
		interval = terminalInterval
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		var shown *phase
		var steps int64
		at := time.Now()
		for {
			select {
			case <-done:
				if r.cfg.ProgressTerminal {
					_, _ = fmt.Fprint(out, "\r\x1b[K") // losing a progress line does no harm
				}
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
				line := progressLine(p, n, float64(n-steps)/max(now.Sub(at).Seconds(), 1e-3), now)
				if bad := r.verify.failed.Load(); bad > 0 {
					line += fmt.Sprintf("  WRONG ANSWERS %d", bad)
				}
				steps, at = n, now
				if r.cfg.ProgressTerminal {
					line = "\r\x1b[K" + line
				} else {
					line += "\n"
				}
				_, _ = fmt.Fprint(out, line)
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// progressLine describes the progress of p: n steps are done, perSecond of them in the last second.
func progressLine(p *phase, n int64, perSecond float64, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %d", p.name, n)
	if p.goal > 0 {
		fmt.Fprintf(&b, "/%d", p.goal)
	}
	fmt.Fprintf(&b, "  %.0f/s  errors %d", perSecond, p.errs.Load())
	left := time.Duration(-1)
	if elapsed := now.Sub(p.started); p.goal > 0 && n > 0 {
		left = time.Duration(float64(elapsed) / float64(n) * float64(p.goal-n))
	}
	if !p.until.IsZero() {
		if byClock := p.until.Sub(now); left < 0 || byClock < left {
			left = byClock
		}
	}
	if left >= 0 {
		fmt.Fprintf(&b, "  ETA %s", left.Round(time.Second))
	}
	return b.String()
}
