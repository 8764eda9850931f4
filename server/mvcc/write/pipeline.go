package write

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sqlbrain/sqlbrain/coder"
)

// Pipeline is the one way to write: it collects commands in batches, evaluates them in
// order, and commits each batch in one atomic step. It serves one leadership. Safe for
// concurrent use.
type Pipeline struct {
	cfg        Config
	index      *indexCache
	optimism   optimism
	decisions  *decisions
	newest     time.Time           // of the commits so far, without a monotonic clock's reading; the sequencer's
	prefetches sync.Map            // of *Prefetch: those in which commits record their changes
	txnWeight  *semaphore.Weighted // in keys of prefetched ranges
	txnBytes   *semaphore.Weighted // in bytes of prefetched values

	queue         chan *request
	queuedBytes   atomic.Int64    // of the requests in queue
	batches       chan []*request // each evaluated and committed together
	draining      chan struct{}   // closed: no new requests, end after the current batch
	drain         sync.Once
	sequencerDone chan struct{}
}

// New returns a pipeline that executes nothing until Run.
func New(cfg Config) (*Pipeline, error) {
	p := &Pipeline{
		cfg: cfg, txnWeight: semaphore.NewWeighted(int64(cfg.Limits.TxnKeys)),
		txnBytes: semaphore.NewWeighted(int64(cfg.Limits.TxnBytes)),
		queue:    make(chan *request, cfg.Limits.QueueLength), batches: make(chan []*request),
		draining: make(chan struct{}), sequencerDone: make(chan struct{}),
	}
	if p.cfg.Clock == nil {
		p.cfg.Clock = time.Now
	}
	var err error
	if p.index, err = newIndexCache(cfg.Limits.IndexCache); err != nil {
		return nil, fmt.Errorf("index cache of %d entries: %w", cfg.Limits.IndexCache, err)
	}
	p.decisions, err = newDecisions()
	return p, err
}

// NotBefore makes the time of a commit be at least at, in milliseconds. It must not be called concurrently with Run.
func (p *Pipeline) NotBefore(at time.Time) {
	if at = at.Truncate(time.Millisecond); at.After(p.newest) {
		p.newest = at
	}
}

// Run executes what is submitted until ctx ends. It ends earlier when the leadership has ended, and
// after Drain.
func (p *Pipeline) Run(ctx context.Context) {
	var collecting sync.WaitGroup
	collecting.Go(func() { p.collect(ctx) })
	p.sequence(ctx)
	collecting.Wait()
}

// Drain makes the pipeline finish the current batch, and refuse what comes later.
func (p *Pipeline) Drain() { p.drain.Do(func() { close(p.draining) }) }

// Done is closed when the pipeline will execute nothing more.
func (p *Pipeline) Done() <-chan struct{} { return p.sequencerDone }

// Waiting returns how many requests wait for a batch.
func (p *Pipeline) Waiting() int { return len(p.queue) }

// TombstonesRemoved records that compaction has removed the index rows of tombstones.
func (p *Pipeline) TombstonesRemoved(tombstones []coder.Change) { p.index.removed(tombstones) }

// Cached returns how many entries the index cache has.
func (p *Pipeline) Cached() int { return p.index.entries() }
