package write

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// New returns a pipeline that executes nothing until Run.
func New(cfg Config) (*Pipeline, error) {
	p := &Pipeline{
		cfg: cfg, txnRoom: semaphore.NewWeighted(int64(cfg.Limits.TxnKeys)),
		queue: make(chan *request, cfg.Limits.QueueLength), batches: make(chan []*request),
		draining: make(chan struct{}), sequencerDone: make(chan struct{}),
	}
	var err error
	if p.index, err = newIndexCache(cfg.Limits.IndexCache); err != nil {
		return nil, fmt.Errorf("index cache of %d entries: %w", cfg.Limits.IndexCache, err)
	}
	p.verdicts, err = newVerdicts()
	return p, err
}

// Run executes what is submitted until ctx ends. It ends earlier to execute when the
// leadership has ended, and after Drain.
func (p *Pipeline) Run(ctx context.Context) {
	var collecting sync.WaitGroup
	collecting.Go(func() { p.collect(ctx) })
	p.sequence(ctx)
	collecting.Wait()
}

// collect forms the next batch while the sequencer executes the current one, and reads ahead
// the index entries that it needs. It is the only receiver from the queue.
func (p *Pipeline) collect(ctx context.Context) {
	var next []*request
	size := 0            // of next
	var ahead []*request // taken from the queue, index entries not read yet
	for {
		in := p.queue
		if len(next) >= p.cfg.Limits.BatchRequests || size >= p.cfg.Limits.BatchBytes {
			in = nil
		}
		var out chan []*request
		if len(next) > 0 {
			out = p.batches
		}
		select {
		case <-ctx.Done():
			return
		case out <- next:
			next, size = nil, 0
			continue
		case r := <-in:
			p.dequeued(r)
			ahead = append(ahead[:0], r)
			size += r.size()
		}
		for in != nil && len(next)+len(ahead) < p.cfg.Limits.BatchRequests && size < p.cfg.Limits.BatchBytes {
			select {
			case r := <-in:
				p.dequeued(r)
				ahead = append(ahead, r)
				size += r.size()
				continue
			default:
			}
			break
		}
		p.readAhead(ctx, ahead)
		next = append(next, ahead...)
	}
}

// readAhead fills the index cache for requests, except for keys that may be
// presumed absent.
func (p *Pipeline) readAhead(ctx context.Context, requests []*request) {
	var keys [][]byte
	for _, r := range requests {
		known, fresh := r.indexKeys()
		keys = append(keys, known...)
		if !p.presumptions.holdFor(len(fresh)) {
			keys = append(keys, fresh...)
		}
	}
	if len(keys) == 0 {
		return
	}
	ctx, span := p.traceBatch(ctx, "read ahead", requests)
	defer span.End()
	p.readKeys(ctx, keys)
}

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
			for len(next) > 0 && p.cfg.Leader.Lost() == nil && ctx.Err() == nil {
				next = p.runBatch(ctx, next)
			}
			for _, r := range next {
				r.done <- p.cfg.Leader.ErrNotLeader()
			}
		}
	}
}

// maxReevaluations is how often a batch is evaluated again because a row of the table was not
// as cached.
const maxReevaluations = 2

// runBatch evaluates requests in order until the commit is full, commits them, answers them,
// and returns the rest.
func (p *Pipeline) runBatch(ctx context.Context, requests []*request) (rest []*request) {
	requests = takeWaiting(requests)
	ctx, span := p.traceBatch(ctx, "batch", requests)
	defer span.End()
	presume := p.presumptions.hold()
	taken, took := time.Now(), mvcc.Steps{}
	for attempt := 0; ; {
		evaluating := time.Now()
		s := newBatchState(p)
		if s.presume = presume; !presume {
			p.loadFresh(ctx, requests)
		}
		outcomes := p.evaluateAll(ctx, s, requests)
		n := len(outcomes)
		committing := time.Now()
		err := firstStale(outcomes)
		if err == nil || attempt == maxReevaluations {
			err = p.commit(ctx, s, requests[:n])
		}
		took.Evaluate, took.Commit = took.Evaluate+committing.Sub(evaluating), took.Commit+time.Since(committing)
		if errors.Is(err, errPresumed) {
			p.judgePresumptions(ctx, s)
			presume = false
			continue
		}
		if errors.Is(err, errStale) && attempt < maxReevaluations {
			attempt++
			p.cfg.Log.Error("the table did not hold what was expected, evaluating again", "error", err)
			p.index.purge()
			p.cfg.View.Purge(p.cfg.Revisions.Visible())
			continue
		}
		if errors.Is(err, mvcc.ErrTooLarge) && n > 1 {
			// One of them is too large for the database. Only that one must fail.
			for i := range n {
				p.runBatch(ctx, requests[i:i+1])
			}
			return requests[n:]
		}
		for i, r := range requests[:n] {
			if err != nil {
				// Every outcome may depend on changes that did not happen.
				outcomes[i] = err
			}
			if ctx.Err() != nil && errors.Is(outcomes[i], ctx.Err()) {
				outcomes[i] = p.cfg.Leader.ErrNotLeader() // the pipeline ended before anything was written
			}
			r.took = mvcc.Steps{Queue: taken.Sub(r.since), Evaluate: took.Evaluate, Commit: took.Commit}
			p.cfg.Metrics.wait.Observe(r.took.Queue.Seconds())
			r.done <- outcomes[i]
			p.cfg.Metrics.queue.Observe(time.Since(r.since).Seconds())
		}
		return requests[n:]
	}
}

// firstStale returns the first of outcomes that is errStale.
func firstStale(outcomes []error) error {
	if i := slices.IndexFunc(outcomes, func(err error) bool { return errors.Is(err, errStale) }); i >= 0 {
		return outcomes[i]
	}
	return nil
}

// takeWaiting marks requests as taken, and drops those that the caller has left.
func takeWaiting(requests []*request) []*request {
	kept := requests[:0]
	for _, r := range requests {
		if r.state.CompareAndSwap(requestWaiting, requestTaken) || r.state.Load() == requestTaken {
			kept = append(kept, r)
		}
	}
	return kept
}

// evaluateAll evaluates requests in order until the commit is full, and returns the outcomes,
// at least one. It bounds the time of the evaluation, so that a database that does not answer
// does not block the pipeline.
func (p *Pipeline) evaluateAll(ctx context.Context, s *batchState, requests []*request) (outcomes []error) {
	// One timer for all. After it has expired, the remaining requests go into the next batch.
	bounded, cancel := context.WithTimeoutCause(ctx, p.cfg.Limits.CommitTimeout, mvcc.ErrTimeout)
	defer cancel()
	for _, r := range requests {
		if len(outcomes) > 0 && (s.full() || bounded.Err() != nil || r.prepared().large()) {
			break
		}
		if r.abandoned.Load() {
			outcomes = append(outcomes, mvcc.ErrTimeout) // no caller is waiting
			continue
		}
		tx, err := p.evaluateOne(bounded, s, r)
		if errors.Is(err, ErrNextBatch) && len(outcomes) > 0 {
			break
		}
		if err == nil {
			s.accept(tx)
		}
		outcomes = append(outcomes, err)
	}
	return outcomes
}

// evaluateOne checks the permit of a request and evaluates its command.
func (p *Pipeline) evaluateOne(ctx context.Context, s *batchState, r *request) (*Tx, error) {
	tx := s.begin(r.prepared())
	if err := r.as.Check(ctx, tx); err != nil {
		return nil, mvcc.PublicError(ctx, err)
	}
	if s.presume {
		_, tx.fresh = r.indexKeys()
	}
	err := r.cmd.Evaluate(ctx, tx)
	if errors.Is(err, errPresumed) || tx.unproven() {
		tx = s.begin(r.prepared())
		err = r.cmd.Evaluate(ctx, tx)
	}
	return tx, mvcc.PublicError(ctx, err)
}
