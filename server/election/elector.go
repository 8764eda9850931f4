package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/tools/leaderelection"
)

// Errors of Transfer.
var (
	// ErrNotHolder: this member does not hold the lock, or lost it meanwhile.
	ErrNotHolder = errors.New("election: this member does not hold the lock")
	// ErrNoSuccessor: the successor's identity is empty.
	ErrNoSuccessor = errors.New("election: no successor named")
	// ErrTransferring: another transfer is under way.
	ErrTransferring = errors.New("election: a transfer is under way")
)

// Elector is one member's part in the election. Its methods are safe for
// concurrent use.
//
// Run's goroutine works in rounds. A round is one run of client-go's elector:
// it tries to take the lock, and then renews it until that fails. A leadership,
// one call of Lead, may outlast many rounds: that renewals fail ends the round
// alone. When a leadership is over, client-go's elector is replaced, because it
// still believes what it saw.
type Elector struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	lock    *lock // Run's goroutine only
	ctx     context.Context
	// abort ends the reads and writes under way.
	abort context.CancelFunc

	mu      sync.Mutex
	started bool
	round   *round      // nil between rounds
	lead    *leadership // nil while not leading
	seen    *row        // the row as it was last seen or written
	held    bool        // this process has held the lock
	dead    *deathReport
	holder  holder
	standBack
}

// round is one run of client-go's elector.
type round struct {
	cancel context.CancelFunc
	// attempted: it has looked at the row at least once, or is about to.
	attempted bool
}

// New returns an Elector, or what is wrong with cfg. It starts nothing.
func New(cfg Config) (*Elector, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Elector{
		cfg: cfg,
		log: cfg.Logger.With("member", cfg.Identity),
	}
	e.lock = &lock{
		store: cfg.Store, log: e.log, timeout: cfg.operationTimeout(),
		identity: cfg.Identity, incarnation: uuid.NewString(), elector: e,
	}
	e.holder.changed = make(chan struct{}, 1)
	if _, err := e.newClientGo(); err != nil {
		return nil, fmt.Errorf("election: %w", err)
	}
	if e.metrics, err = newMetrics(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("election: %w", err)
	}
	return e, nil
}

// newClientGo returns an elector of client-go's that has seen nothing yet. Its
// callbacks do nothing: client-go runs them in goroutines that nobody can wait
// for, and so what they tell is taken from the lock instead.
func (e *Elector) newClientGo() (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          e.lock,
		Name:          lockName,
		LeaseDuration: e.cfg.LeaseDuration,
		RenewDeadline: e.cfg.RenewDeadline,
		RetryPeriod:   e.cfg.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {},
			OnStoppedLeading: func() {},
		},
	})
}

// Run campaigns until ctx ends; then it ends Lead's context, waits for Lead to
// return, and releases the lock, so that another takes over at once. The
// release takes at most RenewDeadline. Run may be called once; a second call
// returns at once.
func (e *Elector) Run(ctx context.Context) {
	e.mu.Lock()
	if e.started {
		e.mu.Unlock()
		e.log.Error("the elector was run before")
		return
	}
	e.started = true
	e.ctx = ctx
	e.lock.base, e.abort = context.WithCancel(context.WithoutCancel(ctx))
	e.mu.Unlock()

	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { e.report(over) })
	wg.Go(func() {
		select {
		case <-ctx.Done():
			e.stopCampaign()
		case <-over:
		}
	})
	e.campaign()
	e.leave()
	e.abort()
	close(over)
	wg.Wait()
	e.metrics.unregister()
}

// campaign runs rounds until Run's context has ended and nobody leads here.
func (e *Elector) campaign() {
	clientGo, err := e.newClientGo()
	for err == nil {
		if ctx, ok := e.openRound(); ok {
			clientGo.Run(ctx)
			e.closeRound()
		}
		lead, over := e.state()
		switch {
		case over:
			return
		case lead != nil && lead.ending():
			e.end(lead)
			clientGo, err = e.newClientGo()
		}
		// Else the round was cut short for a fresh attempt, or renewals failed
		// and Lead goes on: the next round tries to renew.
	}
	e.log.Error("the election cannot go on", "error", err) // New made one with the same configuration
}

// openRound returns the context of a new round, or false if there is to be none.
func (e *Elector) openRound() (context.Context, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lead == nil && e.ctx.Err() != nil || e.lead != nil && (e.lead.lost || e.lead.returned) {
		return nil, false
	}
	ctx, cancel := context.WithCancel(withClientGoLogger(context.WithoutCancel(e.ctx), e.log))
	e.round = &round{cancel: cancel}
	return ctx, true
}

func (e *Elector) closeRound() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.round.cancel()
	e.round = nil
}

// endRound ends the round under way, if there is one; e.mu is held.
func (e *Elector) endRound() {
	if e.round != nil {
		e.round.cancel()
	}
}

func (e *Elector) state() (lead *leadership, over bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lead, e.lead == nil && e.ctx.Err() != nil
}

// stopCampaign is called when Run's context has ended. A leader keeps renewing
// until its Lead has returned, so that nobody takes the lock before.
func (e *Elector) stopCampaign() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lead == nil {
		e.abort()
		e.endRound()
	}
}

// leave releases a lock that was taken, or may have been, when Run's context
// ended. Nobody led with it, and whoever led before may still.
func (e *Elector) leave() {
	if e.lock.ours() {
		e.release("", false)
	}
}

// release gives the lock up within RenewDeadline.
func (e *Elector) release(successor string, clean bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), e.cfg.RenewDeadline)
	defer cancel()
	err := e.lock.release(ctx, successor, clean, e.cfg.LeaseDuration, e.cfg.RetryPeriod)
	if err == nil || errors.Is(err, ErrNotHolder) {
		e.mu.Lock()
		e.noteRow(e.lock.row)
		e.mu.Unlock()
	} else {
		e.lock.forget()
	}
	switch {
	case err == nil && successor == "":
		e.log.Info("released the lock", "clean", clean)
	case err == nil:
		e.log.Info("handed the lock over", "successor", successor, "clean", clean)
	case errors.Is(err, ErrNotHolder):
		e.log.Info("the lock to be released is another's already")
	default:
		e.log.Warn("the lock could not be released, it expires by itself", "error", err)
	}
	return err
}

// Retry makes a candidate look at the lock right now, rather than when its
// retry period is over: for when the leader's stream ended, say. It returns at
// once. The attempt under way, if any, is finished first; calls that come
// meanwhile share the next one. A leader does nothing.
func (e *Elector) Retry() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.retry()
}

func (e *Elector) retry() {
	if e.lead == nil && e.round != nil && e.round.attempted {
		e.round.cancel()
	}
}

// standBack keeps a member whose Lead failed from taking the lock again before
// others could.
type standBack struct {
	until time.Time
	delay time.Duration
}

func (s *standBack) active() bool { return time.Now().Before(s.until) }

// after returns how long to stand back after a call of Lead that took so long.
func (s *standBack) after(took, retryPeriod time.Duration) time.Duration {
	shortest, longest := 4*retryPeriod, 64*retryPeriod
	if took > longest {
		s.delay = 0
	}
	s.delay = min(max(2*s.delay, shortest), longest)
	s.until = time.Now().Add(s.delay)
	return s.delay
}
