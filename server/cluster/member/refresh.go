package member

import (
	"context"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// refresh is a look at the table that several callers share.
type refresh struct {
	done chan struct{} // closed when the look has ended
	err  error         // set before done is closed
}

// Looked returns a channel that is closed at the next look at the table.
func (r *Registry) Looked() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.looked
}

// notifyLooked closes the channel that Looked returned, after a look.
func (r *Registry) notifyLooked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.looked)
	r.looked = make(chan struct{})
}

// Refresh waits for a look at the table that begins after the call. Callers share
// looks, and there is at most one per 100 ms, so Refresh may be called for every
// connection of an unknown process. It needs Run; without it, it waits until ctx ends.
func (r *Registry) Refresh(ctx context.Context) error {
	r.mu.Lock()
	next := r.next
	if next == nil {
		next = &refresh{done: make(chan struct{})}
		r.next = next
		r.asked <- struct{}{} // has room: Run clears next only after it has received
	}
	r.mu.Unlock()
	select {
	case <-next.done:
		return next.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refresh makes the look that callers of Refresh wait for.
func (r *Registry) refresh(ctx context.Context) {
	r.mu.Lock()
	asked := r.next
	r.next = nil // later callers need a later look
	r.mu.Unlock()
	asked.err = r.listOnce(ctx)
	close(asked.done)
}

// listOnce lists the members within a bound. A failure is not logged: polls fail too.
func (r *Registry) listOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.trips.bound(timing.PollTimeout))
	defer cancel()
	_, err := r.list(ctx)
	return err
}
