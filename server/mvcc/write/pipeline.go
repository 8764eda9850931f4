package write

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/semaphore"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Command is one unit of work of the pipeline: a transaction, a change of a lease, a
// compaction. The sequencer evaluates commands one after the other.
type Command interface {
	// Evaluate decides the outcome against the newest state, and makes its changes in tx.
	// On an error none of them are kept. It may run more than once, against newer states,
	// before one outcome is committed.
	Evaluate(ctx context.Context, tx *Tx) error
}

// Func is a Command that consists of its Evaluate.
type Func func(ctx context.Context, tx *Tx) error

// Evaluate implements Command.
func (f Func) Evaluate(ctx context.Context, tx *Tx) error { return f(ctx, tx) }

// Pipeline is the one way to write: it collects commands in batches, evaluates them in
// order, and commits each batch in one atomic step. It serves one leadership. Safe for
// concurrent use.
type Pipeline struct {
	cfg          Config
	index        *indexCache
	presumptions presumptions
	verdicts     *verdicts
	aheads       aheads
	txnRoom      *semaphore.Weighted // keys of ranges read ahead

	queue         chan *request
	queuedBytes   atomic.Int64    // of the requests in queue
	batches       chan []*request // each evaluated and committed together
	draining      chan struct{}   // closed: no new requests, end after the current batch
	drain         sync.Once
	sequencerDone chan struct{}
}

// Drain makes the pipeline finish the current batch, and turn away what comes later.
func (p *Pipeline) Drain() { p.drain.Do(func() { close(p.draining) }) }

// Done is closed when the pipeline will execute nothing more.
func (p *Pipeline) Done() <-chan struct{} { return p.sequencerDone }

// Waiting returns how many requests wait for a batch.
func (p *Pipeline) Waiting() int { return len(p.queue) }

// Cached returns how many entries the index cache has.
func (p *Pipeline) Cached() int { return p.index.entries() }

// request is a command on its way through the pipeline.
type request struct {
	cmd   Command
	as    auth.Permit
	since time.Time
	// state changes once: from waiting to taken (by the sequencer) or to left (by the
	// caller). A request that was left was not executed.
	state atomic.Int32
	// abandoned: no caller is waiting for the outcome.
	abandoned atomic.Bool
	done      chan error // buffered; receives the outcome once
	span      trace.Span // nil: not traced
	took      mvcc.Steps // set before done is
}

const (
	requestWaiting int32 = iota
	requestTaken
	requestLeft
)

// Prefetched is a Command that may have read ahead.
type Prefetched interface {
	Command
	Prefetched() *Prefetch // nil: nothing
}

// prepared returns what the request's command has read ahead, nil if nothing.
func (r *request) prepared() *Prefetch {
	if c, ok := r.cmd.(Prefetched); ok {
		return c.Prefetched()
	}
	return nil
}

// indexKeys returns the raw keys whose index entries the evaluation reads, as far as they
// are known before. Those in fresh, which keys does not have, are written only if they do
// not exist. Only transactions know.
func (r *request) indexKeys() (keys, fresh [][]byte) {
	if c, ok := r.cmd.(*TxnCommand); ok {
		return c.keys, c.fresh
	}
	return nil, nil
}

// size returns about how many bytes of clients' keys and values the command writes.
func (r *request) size() int {
	if c, ok := r.cmd.(*TxnCommand); ok {
		return c.bytes
	}
	return 0
}

// note adds the times of the request to the steps under ctx. If it was not executed, that is
// the time in the queue.
func (r *request) note(ctx context.Context, executed bool) {
	s := mvcc.StepsOf(ctx)
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
