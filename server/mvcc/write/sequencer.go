package write

import (
	"context"
	"errors"
	"time"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// sequence is the sequencer: the only goroutine that evaluates commands, assigns revisions and
// commits. It returns when ctx or the leadership ends, or after the current batch when the
// pipeline drains.
func (p *Pipeline) sequence(ctx context.Context) {
	defer close(p.sequencerDone)
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.cfg.Leader.Ended():
			return
		case <-p.draining:
			return
		case next := <-p.batches:
			p.runBatches(ctx, next)
		}
	}
}

// runBatches executes and answers requests, while this node leads: after that the fence must not be used.
func (p *Pipeline) runBatches(ctx context.Context, requests []*request) {
	for len(requests) > 0 && p.cfg.Leader.Lost() == nil && ctx.Err() == nil {
		requests = p.runBatch(ctx, requests)
	}
	for _, r := range requests {
		r.done <- result{err: p.cfg.Leader.ErrNotLeader()}
	}
}

// maxReevaluations is how often a batch is evaluated again because a row of the table was not
// as cached.
const maxReevaluations = 2

// rangesShare is the part of CommitTimeout that a transaction with ranges may keep the sequencer. After that its caller
// prefetches them again, and it may take twice as long, so that a transaction whose rows take long ends.
const rangesShare = 10

// runBatch evaluates requests in order until the commit is full, commits them, answers them,
// and returns the remainder.
func (p *Pipeline) runBatch(ctx context.Context, requests []*request) (remainder []*request) {
	for _, r := range requests {
		r.state.CompareAndSwap(requestWaiting, requestTaken)
	}
	ctx, span := p.traceBatch(ctx, "batch", requests)
	defer span.End()
	assume := p.optimism.allowed()
	taken, took := time.Now(), mvcc.Steps{}
	for attempt := 0; ; {
		evaluating := time.Now()
		b := newBatch(p, assume)
		results := p.evaluateAll(ctx, b, requests)
		n := len(results)
		committing, end := time.Now(), results[n-1]
		if end.outcome != cacheStale || attempt == maxReevaluations {
			end = p.commit(ctx, b, requests[:n])
		}
		took.Evaluate, took.Commit = took.Evaluate+committing.Sub(evaluating), took.Commit+time.Since(committing)
		switch {
		case end.outcome == assumptionFailed:
			p.reviewAssumptions(ctx, b)
			assume = false
			continue
		case end.outcome == cacheStale && attempt < maxReevaluations:
			attempt++
			p.cfg.Log.Error("the table did not hold what was expected, evaluating again", "error", end.err)
			p.index.purge()
			p.cfg.View.Purge(p.cfg.Revisions.Visible())
			continue
		case errors.Is(end.err, mvcc.ErrTooLarge) && n > 1:
			// One of them is too large for the database. Only that one must fail.
			for i := range n {
				p.runBatches(ctx, requests[i:i+1])
			}
			return requests[n:]
		}
		for i, r := range requests[:n] {
			res := results[i]
			if end.err != nil {
				// Every outcome may depend on changes that did not happen.
				res = result{err: end.err}
			}
			if ctx.Err() != nil && errors.Is(res.err, ctx.Err()) {
				res = result{err: p.cfg.Leader.ErrNotLeader()} // the pipeline ended before anything was written
			}
			r.took = mvcc.Steps{Queue: taken.Sub(r.since), Evaluate: took.Evaluate, Commit: took.Commit}
			p.cfg.Metrics.wait.Observe(r.took.Queue.Seconds())
			r.done <- res
			p.cfg.Metrics.queue.Observe(time.Since(r.since).Seconds())
		}
		return requests[n:]
	}
}

// evaluateAll evaluates requests in order until the commit is full or the cache is stale, and returns the results, at
// least one. It bounds the time of the evaluation, so that a database that does not answer
// does not block the pipeline.
func (p *Pipeline) evaluateAll(ctx context.Context, b *batch, requests []*request) (results []result) {
	// One timer for all. After it has expired, the remaining requests go into the next batch.
	bounded, cancel := context.WithTimeoutCause(ctx, p.cfg.Limits.CommitTimeout, mvcc.ErrTimeout)
	defer cancel()
	for i, r := range requests {
		b.requests = requests[i:]
		if len(results) > 0 && (b.full() || bounded.Err() != nil || r.prefetched().large()) {
			break
		}
		if r.abandoned() {
			results = append(results, result{err: mvcc.ErrTimeout}) // no caller is waiting
			continue
		}
		tx, res := p.evaluate(bounded, b, r)
		if res.outcome == nextBatch && len(results) > 0 {
			break
		}
		if res.err == nil {
			b.accept(tx)
		}
		if results = append(results, res); res.outcome == cacheStale {
			break
		}
	}
	return results
}

// evaluate checks the permit of a request and evaluates its command.
func (p *Pipeline) evaluate(ctx context.Context, b *batch, r *request) (*Tx, result) {
	pre, bounded := r.prefetched(), ctx
	if pre != nil && pre.lease == nil { // its ranges may be many, and some may have to be read again
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, min(p.cfg.Limits.CommitTimeout,
			p.cfg.Limits.CommitTimeout/rangesShare<<pre.attempt))
		defer cancel()
	}
	tx := b.begin(pre)
	if err := r.as.Check(ctx, tx); err != nil {
		return tx, result{tx.outcome, mvcc.PublicError(ctx, err)}
	}
	if b.assume {
		tx.creates = r.txn().creates
	}
	err := tx.evaluate(bounded, r.cmd)
	if tx.outcome == assumptionFailed || tx.unproven() {
		tx = b.begin(pre)
		err = tx.evaluate(bounded, r.cmd)
	}
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		tx.outcome = prefetchFirst
	}
	return tx, result{tx.outcome, mvcc.PublicError(ctx, err)}
}
