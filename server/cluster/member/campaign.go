package member

import (
	"context"
	"errors"
	"fmt"
)

// ErrNotHolder is an error of Transfer: this process does not hold the lock, or has lost it.
var ErrNotHolder = errors.New("member: this member does not hold the lock")

// Campaign makes this process a candidate for the leadership, until Resign, or until it is
// no longer a member. It is called once, and needs Run.
//
// lead is called in its own goroutine when this process was granted the lock, and not
// again before it has returned. Its context ends when another process was granted the
// lock, with Resign, Transfer and Run's context, and once the process is no longer a
// member. It does not end because heartbeats fail: while the database is away no process
// can commit, and a leader whose lock no other process took continues in the same call.
// lead must return soon after its context has ended, because the lock is released after
// that. If it returns before, the lock is released, and this member stands back (at
// first for timing.StandBack, doubled by each further short call, up to
// timing.LongestStandBack), so that others get their chance. An error is then logged.
//
// observed is called when the holder has changed, with its member id; 0 is none. Calls
// come in order from Run's goroutine, and continue after Resign. It must not block.
func (r *Registry) Campaign(lead func(context.Context) error, observed func(holder uint64)) {
	e := r.elector
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lead, e.observed = lead, observed
	e.PollNow()
}

// StopCampaign begins what Resign does, and does not wait for it. Resigned is closed
// once it is done.
func (r *Registry) StopCampaign() { r.elector.stop() }

// Resigned is closed once this process has resigned and has released the lock, or could
// not do so within timing.ReleaseTimeout.
func (r *Registry) Resigned() <-chan struct{} { return r.elector.resigned }

// Resign ends the candidacy for good. If this process leads, it ends lead's context,
// waits for lead to return, and releases the lock, for at most timing.ReleaseTimeout;
// another process can take over at once. Heartbeats and polls continue.
func (r *Registry) Resign() {
	r.elector.stop()
	<-r.elector.resigned
}

// Holder returns the member that holds the lock, 0 if none does, as this process last
// saw it. A holder whose process is known to be gone is none; a silent one may be.
func (r *Registry) Holder() uint64 {
	r.elector.mu.Lock()
	defer r.elector.mu.Unlock()
	return r.elector.holder
}

// PollNow makes Run read the lock row at once. It returns at once. Calls that come during a poll share the next one.
func (r *Registry) PollNow() {
	select {
	case r.pollNow <- struct{}{}:
	default:
	}
}

// Transfer hands the lock over to the process of another member: it ends lead's context,
// waits for lead to return, and grants the lock to the successor, which leads once it
// reads the lock row. If it does not, it is challenged like any leader. Naming this member does
// nothing.
//
// It returns ErrNotHolder, that a transfer is under way, or why the row could not be written. If ctx
// ends first it returns ctx's error, and the transfer continues.
func (r *Registry) Transfer(ctx context.Context, successor Member) error {
	e, t := r.elector, &transfer{successor: successor, result: make(chan error, 1)}
	e.mu.Lock()
	var err error
	switch l := e.term; {
	case l == nil || l.lost || !l.over.IsZero():
		err = ErrNotHolder
	case successor.ID == e.id:
		t.result <- nil
	case l.transfer != nil:
		err = errors.New("member: a transfer is under way")
	default:
		l.transfer = t
		l.cancel()
	}
	e.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case err := <-t.result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("member: waiting for the transfer: %w", ctx.Err())
	}
}
