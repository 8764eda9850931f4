package mvcc

import (
	"context"
	"time"
)

// Steps is the time that the steps of one request took, each the sum of its runs. It
// belongs to the goroutine that executes the request.
type Steps struct {
	// Confirm is finding the newest revision, before a linearizable read: a look at the
	// fence row, or a question to the leader and the wait for its answer.
	Confirm time.Duration
	// Queue is waiting for a batch. Evaluate is evaluating the batch, including reads of
	// the table. Commit is writing it, or confirming the leadership if it writes nothing.
	Queue, Evaluate, Commit time.Duration
	// Forward is waiting for the leader to execute the request.
	Forward time.Duration
}

type stepsKey struct{}

// WithSteps returns a context under which requests add the time of their steps to the
// second result. A request that fails may leave out the step that it was in.
func WithSteps(ctx context.Context) (context.Context, *Steps) {
	s := &Steps{}
	return context.WithValue(ctx, stepsKey{}, s), s
}

// StepsOf returns the steps of the request under ctx, nil if they are not recorded.
func StepsOf(ctx context.Context) *Steps {
	s, _ := ctx.Value(stepsKey{}).(*Steps)
	return s
}
