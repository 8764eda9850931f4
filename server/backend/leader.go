package backend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// handoverTimeout bounds how long a leader that stops of its own will goes on
// with what is under way, and writes lease checkpoints.
const handoverTimeout = time.Second

// leader is what a backend has besides while it leads: the pipeline, the clocks
// of leases, compaction. Each leadership has its own.
type leader struct {
	*Backend

	chain         *chain // the sequencer's
	authority     authority
	confirmations *shared[struct{}]

	index        *indexCache
	presumptions presumptions
	lessor       *lessor
	tokens       *tokenClock
	compactor    *compactor
	policies     *policyLeases // the sequencer's
	verdicts     *verdicts

	aheads      aheads
	txnRoom     *semaphore.Weighted // keys of ranges read ahead
	revocations *semaphore.Weighted // keys of leases on their way out, see revocationRoom
	pieceSize   pieceSize

	queue         chan *request
	batches       chan *batch
	draining      chan struct{} // closed: no new requests, end behind the batch at hand
	drain         sync.Once
	sequencerDone chan struct{}

	alive  context.Context // ends with the leadership
	die    context.CancelFunc
	reason atomic.Pointer[error] // why the leadership ended, if not of its own will
	ended  chan struct{}         // closed with reason set
}

// LeadOptions are what Lead's caller wants to know.
type LeadOptions struct {
	// Leading, if not nil, is called once the node serves as the leader.
	Leading func(term int64)
}

// Lead takes the leadership of the table, which fences whoever leads, and leads
// until ctx ends or somebody else took over. On the way out it finishes what it is
// committing; what still waits is answered with ErrNotLeader. Nothing else may
// change what this node knows meanwhile (Apply, CatchUp). It returns nil if ctx
// ended, else why it could not lead, or not any more; the node may be made to lead
// again unless the error is ErrNotServing.
func (b *Backend) Lead(ctx context.Context, opts LeadOptions) error {
	l, err := b.takeOver(ctx)
	if err != nil {
		if errors.Is(err, errDataLost) {
			return b.stopServing(err)
		}
		return err
	}
	return l.run(ctx, opts.Leading)
}

// takeOver makes this node the leader, but does not serve as one yet.
func (b *Backend) takeOver(ctx context.Context) (*leader, error) {
	if err := b.serving(); err != nil {
		return nil, err
	}
	l := &leader{
		Backend:       b,
		queue:         make(chan *request, b.cfg.QueueLength),
		batches:       make(chan *batch),
		draining:      make(chan struct{}),
		sequencerDone: make(chan struct{}),
		ended:         make(chan struct{}),
		policies:      newPolicyLeases(b.cfg.TTLPolicies),
		txnRoom:       semaphore.NewWeighted(int64(b.cfg.maxTxnKeys)),
		revocations:   semaphore.NewWeighted(revocationRoom),
	}
	l.authority.always = b.cfg.Exclusive && !b.cfg.ConfirmReads
	l.authority.never, l.authority.now = b.cfg.ConfirmReads, b.cfg.leaseClock
	l.confirmations = newShared(settleTimeout, l.readChain)
	l.alive, l.die = context.WithCancel(context.Background())
	var err error
	if l.index, err = newIndexCache(b.cfg.IndexCache); err != nil {
		return nil, fmt.Errorf("index cache of %d entries: %w", b.cfg.IndexCache, err)
	}
	if l.verdicts, err = newVerdicts(); err != nil {
		return nil, err
	}
	if err := b.checkLost(ctx); err != nil {
		return nil, err
	}
	if l.chain, err = takeChain(ctx, b.store, b.log, b.chainVerifier()); err != nil {
		return nil, err
	}
	taken := time.Now()
	// A restore that began since this node was opened has found its chain row, and
	// ended there, or brought its own.
	if err := refuseRestoring(ctx, b.store); err != nil {
		return nil, err
	}
	held := l.chain.held
	b.noteChain(held)
	b.alarms.distrust()
	if err := b.alarms.load(ctx, b.store); err != nil {
		return nil, err
	}
	if l.lessor, err = loadLessor(ctx, l); err != nil {
		return nil, err
	}
	if _, err := b.auth.load(ctx); err != nil {
		return nil, err
	}
	if l.tokens, err = loadTokens(ctx, b); err != nil {
		return nil, err
	}
	l.compactor = newCompactor(l)
	if !b.cfg.Exclusive && l.chain.predecessorMayAnswer() && !off("fence") {
		if err := rest(ctx, takeoverWait-time.Since(taken)); err != nil {
			return nil, err
		}
	}
	// Not earlier: the last commits may be news to the predecessor itself.
	if err := b.catchUpTo(ctx, held.Revision); err != nil {
		return nil, fmt.Errorf("catching up to revision %d: %w", held.Revision, err)
	}
	return l, nil
}

// run serves as the leader until ctx ends or the leadership does.
func (l *leader) run(ctx context.Context, leading func(term int64)) error {
	term := l.chain.held.Term
	l.lessor.start(time.Now()) // not earlier: see lessor
	l.leading.Store(l)
	l.log.Info("leading", "term", term, "revision", l.Revision(), "compact_revision", l.CompactRevision(), "leases", l.lessor.count())
	if leading != nil {
		leading(term)
	}
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer l.die()
	var workers sync.WaitGroup
	for _, work := range []func(context.Context){
		l.sequence, l.collect, l.watchFence, l.lessor.run, l.compactor.run, l.autoCompact, l.watchQuota, l.sweepTokens,
	} {
		workers.Go(func() { work(working) })
	}
	select {
	case <-ctx.Done():
		l.handOver()
	case <-l.ended:
	}
	// Requests see that nobody leads here before they are turned away.
	l.leading.CompareAndSwap(l, nil)
	l.stopIntake()
	cut := time.AfterFunc(handoverTimeout, cancel)
	<-l.sequencerDone
	cut.Stop()
	cancel()
	workers.Wait()
	l.die()
	l.confirmations.close()
	l.resign()
	if err := l.lost(); err != nil {
		return err
	}
	l.log.Info("leads no more", "term", term, "revision", l.Revision())
	return nil
}

// handOver writes down what the next leader cannot know.
func (l *leader) handOver() {
	ctx, cancel := context.WithTimeout(context.Background(), handoverTimeout)
	defer cancel()
	if err := l.lessor.handOver(ctx); err != nil && l.lost() == nil {
		l.log.Warn("leases get more time than they had left", "error", err)
	}
}

// resign spares the next leader the wait for this one, which stops to answer first.
// If it does not come to be written, the next one waits.
func (l *leader) resign() {
	l.authority.ended.Store(true)
	if l.cfg.Exclusive || l.lost() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handoverTimeout)
	defer cancel()
	err := l.chain.resign(ctx)
	if errors.Is(err, sqlstore.ErrRowMissing) {
		_ = l.end(rowMissing(err))
		return
	}
	if err != nil {
		l.log.Warn("the next leader has to wait a moment", "error", err)
	}
}

func (l *leader) stopIntake() { l.drain.Do(func() { close(l.draining) }) }

// end ends the leadership because of cause, and returns the error of requests that
// were not executed. If the database lost data the node stops serving.
func (l *leader) end(cause error) error {
	if errors.Is(cause, sqlstore.ErrRowMissing) {
		l.noteMissing()
	}
	err := fmt.Errorf("%w: %w", ErrNotLeader, cause)
	if errors.Is(cause, errDataLost) || l.cfg.Leadership == nil {
		// Nothing that is left here can be believed, or kept up to date.
		err = l.stopServing(cause)
	}
	if l.reason.CompareAndSwap(nil, &err) {
		l.log.Warn("the leadership ended", "error", cause)
		l.leading.CompareAndSwap(l, nil)
		l.die()
		close(l.ended)
	}
	return *l.reason.Load()
}

// lost returns why the leadership ended, nil if it did not, or of its own will.
func (l *leader) lost() error {
	if err := l.reason.Load(); err != nil {
		return *err
	}
	return nil
}

// turnedAway is the error of a request that was not executed.
func (l *leader) turnedAway() error {
	if err := l.lost(); err != nil {
		return err
	}
	return fmt.Errorf("%w any more", ErrNotLeader)
}

// lead returns the leadership, or why there is none here.
func (b *Backend) lead() (*leader, error) {
	if err := b.serving(); err != nil {
		return nil, err
	}
	if l := b.leading.Load(); l != nil {
		return l, nil
	}
	return nil, ErrNotLeader
}

// Leading reports whether the node leads.
func (b *Backend) Leading() bool { return b.leading.Load() != nil }
