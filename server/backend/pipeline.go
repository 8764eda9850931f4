package backend

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// command is one unit of work of the pipeline: a transaction, a lease change, a
// compaction. The sequencer evaluates commands one after the other.
type command interface {
	// touches returns the raw keys whose index entries evaluate will look at, as
	// far as they are known before; they are read ahead in one statement. Those in
	// fresh, and in keys not, the command writes only if they do not exist.
	touches() (keys, fresh [][]byte)
	// evaluate decides the outcome against the newest state and stages the
	// changes in s. On an error nothing of it is kept. It may run more than
	// once, against newer states, before one outcome is committed.
	evaluate(ctx context.Context, s *stage) error
	// size is about how many bytes the command writes.
	size() int
}

// request is a command on its way through the pipeline.
type request struct {
	cmd    command
	permit Permit // nil: whatever it is
	since  time.Time
	// state goes from waiting to taken (by the sequencer) or left (by the
	// caller), whoever is first. A request that was left was not executed.
	state atomic.Int32
	// abandoned says that nobody waits for the outcome any more.
	abandoned atomic.Bool
	done      chan error // buffered; receives the outcome once
	span      trace.Span // nil: not traced
	took      Steps      // set before done is
}

const (
	requestWaiting int32 = iota
	requestTaken
	requestLeft
)

// submit runs cmd through the pipeline and waits for its outcome: nil, once its
// changes are durable and visible, or why it was not executed. When ctx ends
// while cmd is being committed, the outcome is unknown to the caller.
func (l *leader) submit(ctx context.Context, cmd command) error {
	permit := permitOf(ctx)
	for {
		r := &request{cmd: cmd, permit: permit, since: time.Now(), done: make(chan error, 1)}
		err := l.traced(ctx, r)
		if !errors.Is(err, errUnpermitted) {
			return err
		}
		if err := l.reachVerdicts(ctx, permit); err != nil {
			return l.publicError(ctx, err)
		}
	}
}

// preparedCommand is a command that may have read ahead.
type preparedCommand interface {
	command
	prepared() *ahead // nil: nothing
}

// prepared returns what the request's command has read ahead, nil if nothing.
func (r *request) prepared() *ahead {
	if c, ok := r.cmd.(preparedCommand); ok {
		return c.prepared()
	}
	return nil
}

// await queues r and waits for its outcome.
func (l *leader) await(ctx context.Context, r *request) error {
	select {
	case <-l.draining:
		return l.turnedAway()
	case <-l.ended:
		return l.turnedAway()
	default:
	}
	select {
	case l.queue <- r:
	default:
		return ErrTooManyRequests
	}
	select {
	case err := <-r.done:
		r.note(ctx, true)
		return err
	case <-ctx.Done():
		if r.state.CompareAndSwap(requestWaiting, requestLeft) {
			r.note(ctx, false)
		}
		r.abandoned.Store(true)
		return l.publicError(ctx, ctx.Err())
	case <-l.sequencerDone:
		if r.state.CompareAndSwap(requestWaiting, requestLeft) {
			return l.turnedAway()
		}
		return <-r.done // what the sequencer takes it answers
	}
}

// batch is a group of requests that is evaluated and committed together.
type batch struct {
	requests []*request
	bytes    int
}

// collect forms batches while the sequencer is busy with the one before, and
// reads ahead the index entries they need. It owns the queue's receiving end.
func (l *leader) collect(ctx context.Context) {
	cur := &batch{}
	var ahead []*request // taken from the queue, index entries not read yet
	for {
		in := l.queue
		if len(cur.requests) >= l.cfg.BatchRequests || cur.bytes >= l.cfg.BatchBytes {
			in = nil
		}
		var out chan *batch
		if len(cur.requests) > 0 {
			out = l.batches
		}
		select {
		case <-ctx.Done():
			return
		case out <- cur:
			cur = &batch{}
			continue
		case r := <-in:
			ahead = append(ahead[:0], r)
		}
		for in != nil && len(cur.requests)+len(ahead) < l.cfg.BatchRequests {
			select {
			case r := <-in:
				ahead = append(ahead, r)
				continue
			default:
			}
			break
		}
		l.readAhead(ctx, ahead)
		for _, r := range ahead {
			cur.requests = append(cur.requests, r)
			cur.bytes += r.cmd.size()
		}
	}
}

// readAhead fills the index cache for requests, except for keys that may be
// presumed absent.
func (l *leader) readAhead(ctx context.Context, requests []*request) {
	var keys [][]byte
	for _, r := range requests {
		known, fresh := r.cmd.touches()
		keys = append(keys, known...)
		if !l.presumptions.holdFor(len(fresh)) {
			keys = append(keys, fresh...)
		}
	}
	if len(keys) == 0 {
		return
	}
	ctx, span := l.traceBatch(ctx, "read ahead", requests)
	defer span.End()
	l.readKeys(ctx, keys)
}

// readKeys fills the index cache for keys. Failing is no error: evaluation reads
// what is missing, and reports.
func (l *leader) readKeys(ctx context.Context, keys [][]byte) {
	if len(keys) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, l.cfg.CommitTimeout)
	defer cancel()
	if err := l.loadIndex(bounded, keys); err != nil && ctx.Err() == nil {
		l.log.Debug("reading index rows ahead failed", "error", err)
	}
}

// sequence is the sequencer: the one goroutine that evaluates, numbers and
// commits. It ends when ctx does, when the leadership does, or, draining, behind
// the batch at hand.
func (l *leader) sequence(ctx context.Context) {
	defer close(l.sequencerDone)
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.ended:
			return
		case <-l.draining:
			return
		case next := <-l.batches:
			for len(next.requests) > 0 && l.lost() == nil && ctx.Err() == nil {
				next.requests = l.runBatch(ctx, next.requests)
			}
			for _, r := range next.requests {
				r.done <- l.turnedAway()
			}
		}
	}
}

// maxReevaluations bounds how often a batch is evaluated again because the table
// did not hold what this leader believed it to hold.
const maxReevaluations = 2

// runBatch evaluates and commits as many of requests, in order, as fit one
// commit, answers them, and returns the rest.
func (l *leader) runBatch(ctx context.Context, requests []*request) (rest []*request) {
	requests = takeWaiting(requests)
	ctx, span := l.traceBatch(ctx, "batch", requests)
	defer span.End()
	presume := l.presumptions.hold()
	taken, took := time.Now(), Steps{}
	for attempt := 0; ; {
		evaluating := time.Now()
		s := newBatchState(l)
		if s.presume = presume; !presume {
			l.loadFresh(ctx, requests)
		}
		outcomes := l.evaluateAll(ctx, s, requests)
		n := len(outcomes)
		committing := time.Now()
		err := firstStale(outcomes)
		if err == nil || attempt == maxReevaluations {
			err = l.commit(ctx, s, requests[:n])
		}
		took.Evaluate, took.Commit = took.Evaluate+committing.Sub(evaluating), took.Commit+time.Since(committing)
		if errors.Is(err, errPresumed) {
			l.judgePresumptions(ctx, s)
			presume = false
			continue
		}
		if errors.Is(err, errStale) && attempt < maxReevaluations {
			attempt++
			l.log.Error("the table did not hold what was expected, evaluating again", "error", err)
			l.index.purge()
			l.records.purge()
			l.ranges.purge()
			continue
		}
		if errors.Is(err, ErrTooLarge) && n > 1 {
			// One of them does not fit the database: only that one shall fail.
			for i := range n {
				l.runBatch(ctx, requests[i:i+1])
			}
			return requests[n:]
		}
		for i, r := range requests[:n] {
			if err != nil {
				// Every outcome was judged on changes that did not happen.
				outcomes[i] = err
			}
			r.took = Steps{Queue: taken.Sub(r.since), Evaluate: took.Evaluate, Commit: took.Commit}
			r.done <- outcomes[i]
			l.metrics.queue.Observe(time.Since(r.since).Seconds())
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

// takeWaiting marks requests as taken and drops those whose caller left before.
func takeWaiting(requests []*request) []*request {
	kept := requests[:0]
	for _, r := range requests {
		if r.state.CompareAndSwap(requestWaiting, requestTaken) || r.state.Load() == requestTaken {
			kept = append(kept, r)
		}
	}
	return kept
}

// evaluateAll evaluates requests in order until the commit is full, and returns
// the outcomes so far, of one request at least. It bounds what is read: a database
// that does not answer must not hold up the pipeline for ever.
func (l *leader) evaluateAll(ctx context.Context, s *batchState, requests []*request) (outcomes []error) {
	// One timer for all; whoever comes when it is over goes into the next batch.
	bounded, cancel := context.WithTimeoutCause(ctx, l.cfg.CommitTimeout, ErrTimeout)
	defer cancel()
	for _, r := range requests {
		if len(outcomes) > 0 && (s.full() || bounded.Err() != nil || r.prepared().large()) {
			break
		}
		if r.abandoned.Load() {
			outcomes = append(outcomes, ErrTimeout) // nobody reads it, nothing is done
			continue
		}
		st, err := l.evaluateOne(bounded, s, r)
		if errors.Is(err, errNextBatch) && len(outcomes) > 0 {
			break
		}
		if err == nil {
			s.accept(st)
		}
		outcomes = append(outcomes, err)
	}
	return outcomes
}

// evaluateOne evaluates a command that is permitted.
func (l *leader) evaluateOne(ctx context.Context, s *batchState, r *request) (*stage, error) {
	st := s.begin(r.prepared())
	if r.permit != nil {
		if err := r.permit(ctx, st); err != nil {
			return nil, l.publicError(ctx, err)
		}
	}
	if s.presume {
		_, st.fresh = r.cmd.touches()
	}
	err := r.cmd.evaluate(ctx, st)
	if errors.Is(err, errPresumed) || st.unproven() {
		st = s.begin(r.prepared())
		err = r.cmd.evaluate(ctx, st)
	}
	return st, l.publicError(ctx, err)
}
