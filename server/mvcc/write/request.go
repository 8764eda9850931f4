package write

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

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
	// A command that may have a prefetch also has a method Prefetched, which returns it, or nil.
}

// Func is a Command that consists of its Evaluate.
type Func func(ctx context.Context, tx *Tx) error

// Evaluate implements Command.
func (f Func) Evaluate(ctx context.Context, tx *Tx) error { return f(ctx, tx) }

// request is a command on its way through the pipeline.
type request struct {
	cmd   Command
	as    auth.Permit
	since time.Time
	state atomic.Int32
	done  chan result // buffered; receives the outcome once
	span  trace.Span  // nil: not traced
	took  mvcc.Steps  // set before done is
}

// The states of a request, in their order.
const (
	requestWaiting   int32 = iota
	requestTaken           // by the sequencer
	requestAbandoned       // no caller is waiting for the outcome: it is not executed, unless its commit has begun
)

// outcome says how the evaluation of a command, or the commit of a batch, has ended.
type outcome int

const (
	// decided: the error is that of the request, nil if it was executed.
	decided outcome = iota
	// nextBatch: the command depends on a change of an earlier command in the same batch that it cannot see
	// before that is committed.
	nextBatch
	// prefetchFirst: the command needs something that was not prefetched. Its caller must prefetch again.
	prefetchFirst
	// authorizeFirst: the permit needs a decision about a lease. The caller of the request must make it.
	authorizeFirst
	// assumptionFailed: a key that was assumed absent was found, or the commit of a batch that assumes
	// some conflicted. The evaluation is repeated without assumptions.
	assumptionFailed
	// commitAgain: a commit did not take effect, and may be tried again.
	commitAgain
	// cacheStale: a row was not as cached, although the fence row was. The batch is evaluated again with empty caches.
	cacheStale
)

// result is an outcome. Unless that is decided, nothing was written, and err says why.
type result struct {
	outcome outcome
	err     error
}

// prefetched returns the prefetch of the request's command, nil if there is none.
func (r *request) prefetched() *Prefetch {
	if c, ok := r.cmd.(interface{ Prefetched() *Prefetch }); ok {
		return c.Prefetched()
	}
	return nil
}

// noTxn is the transaction of other commands.
var noTxn TxnCommand

// txn returns the command if it is a transaction, else an empty one.
func (r *request) txn() *TxnCommand {
	if c, ok := r.cmd.(*TxnCommand); ok {
		return c
	}
	return &noTxn
}

// recordSteps adds the times of the request to the steps under ctx.
func (r *request) recordSteps(ctx context.Context) {
	if s := mvcc.StepsOf(ctx); s != nil {
		s.Queue += r.took.Queue
		s.Evaluate += r.took.Evaluate
		s.Commit += r.took.Commit
	}
}

// abandon records that the caller stops waiting because of err.
func (r *request) abandon(ctx context.Context, err error) result {
	if r.state.Swap(requestAbandoned) == requestWaiting {
		r.as = auth.Permit{} // it may keep the client's message, whose bytes are not counted
		if s := mvcc.StepsOf(ctx); s != nil {
			s.Queue += time.Since(r.since)
		}
	}
	return result{err: err}
}

func (r *request) abandoned() bool { return r.state.Load() == requestAbandoned }
