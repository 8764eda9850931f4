// Package retry spaces out attempts at something that fails for a while, such as a call of a
// database that does not answer, and work that is repeated. The caller keeps its loop, and decides
// which errors end it.
package retry

import (
	"context"
	"iter"
	"math/rand/v2"
	"time"
)

// Backoff says how long to pause between attempts: up to Min after the first failure, twice as
// long after each further one, and at most Max. Each pause is shortened at random by up to half,
// so that callers that failed together do not try again together. Both must be at least 2 ns.
// A Backoff holds no state and is safe for concurrent use.
type Backoff struct {
	Min, Max time.Duration
}

// Database spaces out attempts against a database that does not answer.
var Database = Backoff{Min: 10 * time.Millisecond, Max: 2 * time.Second}

// Pause returns how long to pause after so many failures in a row, counted from 1.
func (b Backoff) Pause(failures int) time.Duration {
	d := b.Min
	for ; failures > 1 && d < b.Max; failures-- {
		d *= 2
	}
	d = min(d, b.Max)
	return d/2 + rand.N(d/2)
}

// Wait pauses after so many failures in a row. Its only error is ctx's, if that ends first.
func (b Backoff) Wait(ctx context.Context, failures int) error {
	return Sleep(ctx, b.Pause(failures))
}

// Every yields once after each d until ctx ends. A step that takes longer than d delays the
// next one, and those it missed are not made up for.
func Every(ctx context.Context, d time.Duration) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if !yield(struct{}{}) {
				return
			}
		}
	}
}

// Sleep waits for d. Its only error is ctx's, if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
