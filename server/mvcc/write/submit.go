package write

import (
	"context"
	"errors"
	"time"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Submit executes cmd if as permits it, and waits for the outcome: nil after its changes have
// become durable and visible, else the reason why it was not executed. If ctx ends during the
// commit, the caller does not learn the outcome. Errors: those of cmd and as,
// mvcc.ErrTooManyRequests if the queue is full, mvcc.ErrTimeout, those of Leader, the database's.
func (p *Pipeline) Submit(ctx context.Context, as auth.Permit, cmd Command) error {
	room := 0 // made for verdicts
	defer func() { p.verdicts.makeRoom(-room) }()
	for {
		r := &request{cmd: cmd, as: as, since: time.Now(), done: make(chan error, 1)}
		err := p.traced(ctx, r)
		if !errors.Is(err, errUnpermitted) {
			return err
		}
		more, err := p.reachVerdicts(ctx, as)
		if room += more; err != nil {
			return mvcc.PublicError(ctx, err)
		}
	}
}

// await queues r and waits for its outcome.
func (p *Pipeline) await(ctx context.Context, r *request) error {
	select {
	case <-p.draining:
		return p.cfg.Leader.ErrNotLeader()
	case <-p.cfg.Leader.Ended():
		return p.cfg.Leader.ErrNotLeader()
	default:
	}
	if !p.enqueue(r) {
		return mvcc.ErrTooManyRequests
	}
	ended, expired := mvcc.Ends(ctx)
	select {
	case err := <-r.done:
		r.note(ctx, true)
		return err
	case <-ended:
		return r.abandon(ctx, mvcc.PublicError(ctx, ctx.Err()))
	case <-expired:
		return r.abandon(ctx, mvcc.ErrTimeout)
	case <-p.sequencerDone:
		if r.state.CompareAndSwap(requestWaiting, requestLeft) {
			return p.cfg.Leader.ErrNotLeader()
		}
		return <-r.done // the sequencer answers every request that it has taken
	}
}

// smallRequest is the size in bytes up to which a request may wait even if others have QueueBytes: clients that write
// much do not keep those from writing that write little.
const smallRequest = 16 << 10

// enqueue reports whether there was room for r in the queue.
func (p *Pipeline) enqueue(r *request) bool {
	size := int64(r.size())
	if all := p.queuedBytes.Add(size); size <= smallRequest || all == size || all <= int64(p.cfg.Limits.QueueBytes) {
		select {
		case p.queue <- r:
			return true
		default:
		}
	}
	p.queuedBytes.Add(-size)
	return false
}

// dequeued notes that r, which was in the queue, is in a batch.
func (p *Pipeline) dequeued(r *request) { p.queuedBytes.Add(-int64(r.size())) }

// abandon notes that the caller stops waiting because of err, and returns err.
func (r *request) abandon(ctx context.Context, err error) error {
	if r.state.CompareAndSwap(requestWaiting, requestLeft) {
		r.note(ctx, false)
	}
	r.abandoned.Store(true)
	return err
}
