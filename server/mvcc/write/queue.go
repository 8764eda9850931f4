package write

import (
	"context"
	"time"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Submit executes cmd if as permits it, and waits for the outcome: nil after its changes have
// become durable and visible, else the reason why it was not executed. If ctx ends during the
// commit, the caller does not learn the outcome. Errors: those of cmd and as,
// mvcc.ErrTooManyRequests if the queue is full, mvcc.ErrTimeout, those of Leader, the database's.
func (p *Pipeline) Submit(ctx context.Context, as auth.Permit, cmd Command) error {
	return p.submit(ctx, as, cmd).err
}

// submit is Submit. The outcome is decided or prefetchFirst.
func (p *Pipeline) submit(ctx context.Context, as auth.Permit, cmd Command) result {
	reserved := 0
	defer func() { p.decisions.reserve(-reserved) }()
	for {
		r := &request{cmd: cmd, as: as, since: time.Now(), done: make(chan result, 1)}
		traced, end := p.traceRequest(ctx, r)
		res := p.await(traced, r)
		end(res.err)
		if res.outcome != authorizeFirst {
			return res
		}
		more, err := p.authorize(ctx, as)
		if reserved += more; err != nil {
			return result{err: mvcc.PublicError(ctx, err)}
		}
	}
}

// await queues r and waits for its outcome.
func (p *Pipeline) await(ctx context.Context, r *request) result {
	select {
	case <-p.draining:
		return p.errNotLeader()
	case <-p.cfg.Leader.Ended():
		return p.errNotLeader()
	default:
	}
	if !p.enqueue(r) {
		return result{err: mvcc.ErrTooManyRequests}
	}
	ended, expired := mvcc.Ends(ctx)
	select {
	case res := <-r.done:
		r.recordSteps(ctx)
		return res
	case <-ended:
		return r.abandon(ctx, mvcc.PublicError(ctx, ctx.Err()))
	case <-expired:
		return r.abandon(ctx, mvcc.ErrTimeout)
	case <-p.sequencerDone: // it has answered every request that it has taken
		select {
		case res := <-r.done:
			return res
		default:
			return p.errNotLeader()
		}
	}
}

// errNotLeader is the result of a request that was not executed because the leadership has ended.
func (p *Pipeline) errNotLeader() result { return result{err: p.cfg.Leader.ErrNotLeader()} }

// smallRequest is the size in bytes up to which a request may wait even if others have QueueBytes: clients that write
// much do not keep those from writing that write little.
const smallRequest = 16 << 10

// enqueue reports whether r fits in the queue.
func (p *Pipeline) enqueue(r *request) bool {
	size := int64(r.txn().bytes)
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
