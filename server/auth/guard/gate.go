package guard

import (
	"context"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// gate bounds how many calls do costly work at a time, and how many wait for a slot.
type gate struct {
	slots   chan struct{} // holds an element for each call that runs
	waiting chan struct{} // holds an element for each call that waits for a slot
}

func newGate(slots, waiting int) *gate {
	return &gate{slots: make(chan struct{}, slots), waiting: make(chan struct{}, waiting)}
}

// run calls f when a slot is free. Errors: mvcc.ErrTooManyRequests if too many calls wait
// already, ctx's.
func (g *gate) run(ctx context.Context, f func()) error {
	select {
	case g.slots <- struct{}{}:
	default:
		if err := g.wait(ctx); err != nil {
			return err
		}
	}
	defer func() { <-g.slots }()
	f()
	return nil
}

func (g *gate) wait(ctx context.Context) error {
	select {
	case g.waiting <- struct{}{}:
	default:
		return mvcc.ErrTooManyRequests
	}
	defer func() { <-g.waiting }()
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
