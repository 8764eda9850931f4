package backend

import (
	"context"
	"time"
)

// Steps is where the time of one request went, as far as it went anywhere worth
// telling. What a step did several times is added up. It belongs to the goroutine that
// executes the request.
type Steps struct {
	// Confirm is finding out what is newest, before a linearizable read: a look at the
	// chain row, or a question to the leader and the wait for what it answered.
	Confirm time.Duration
	// Queue is waiting for a batch, Evaluate what the batch was judged in, reading from
	// the table included, Commit writing it, or confirming that nothing is to be written.
	Queue, Evaluate, Commit time.Duration
	// Forward is waiting for the leader to execute the request.
	Forward time.Duration
}

type stepsKey struct{}

// WithSteps returns a context under which requests note in the second result where
// their time goes. Errors may leave it without what was under way.
func WithSteps(ctx context.Context) (context.Context, *Steps) {
	s := &Steps{}
	return context.WithValue(ctx, stepsKey{}, s), s
}

// StepsOf returns where a request under ctx notes its steps; nil if nobody asks.
func StepsOf(ctx context.Context) *Steps {
	s, _ := ctx.Value(stepsKey{}).(*Steps)
	return s
}

// note adds what a write took, or if it was not executed, the time it waited.
func (r *request) note(ctx context.Context, executed bool) {
	s := StepsOf(ctx)
	switch {
	case s == nil:
	case executed:
		s.Queue += r.took.Queue
		s.Evaluate += r.took.Evaluate
		s.Commit += r.took.Commit
	default:
		s.Queue += time.Since(r.since)
	}
}
