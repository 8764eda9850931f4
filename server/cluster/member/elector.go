package member

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// elector is this process's part in the election. Registry.Run calls step with each lock row
// that it has read. The row alone decides what step does, so earlier writes with an unknown
// outcome need no resolving.
type elector struct {
	*Registry

	// Only Run's goroutine uses these.
	base    context.Context
	lock    lock    // as last read or written
	pending pending // the challenge in it
	refused bool    // the last attempt to take the lock failed: the holder gets a new challenge first

	leads    sync.WaitGroup // calls of lead
	resigned chan struct{}  // closed by resign
	resign   func()         // called once nothing is left to release

	mu       sync.Mutex                  // not Registry.mu
	lead     func(context.Context) error // nil before Campaign
	observed func(holder uint64)
	quit     time.Time   // when the process resigned; zero before
	mayHold  bool        // this process may hold the lock, as far as it knows
	term     *leadership // nil while the process neither leads nor has to release
	spent    int64       // the grant of the last leadership that is over
	holder   uint64      // the member that has the lock, 0 if none
	hearing  hearing     // of the holder
	reported uint64      // the holder that observed was last called with
	// A member whose lead has failed so often in a row does not take the lock before others could.
	failures  int
	standBack time.Time
}

// leadership is one call of lead, and what remains to be done after it.
type leadership struct {
	grant  int64
	begun  time.Time
	cancel context.CancelFunc // ends lead's context

	// elector.mu guards these.
	lost     bool      // another process was granted the lock
	over     time.Time // when lead returned; zero before
	transfer *transfer // nil: none is requested
}

// transfer is a request to hand the lock over.
type transfer struct {
	successor Member
	result    chan error // buffered
}

func newElector(r *Registry) *elector {
	e := &elector{Registry: r, resigned: make(chan struct{})}
	e.resign = sync.OnceFunc(func() { close(e.resigned) })
	return e
}

// standing reports whether the process may take the lock. e.mu is held.
func (e *elector) standing() bool { return e.lead != nil && e.quit.IsZero() }

// standsBack reports whether it does not take it for a while. e.mu is held.
func (e *elector) standsBack() bool { return time.Now().Before(e.standBack) }

// vacant reports whether the lock may be taken at once: it was released, or its holder's process is known to be gone.
func (e *elector) vacant() bool {
	l := e.lock
	if l.Holder == 0 {
		return true
	}
	m, known := withID(e.view.last(), l.Holder)
	return !known || m.Stopped || m.Incarnation != l.Incarnation
}

// names reports whether l is a grant to this process.
func (e *elector) names(l lock) bool {
	return l.Holder == e.id && l.Incarnation == e.incarnation
}

// step acts on the lock row, which was read since began. The error is the database's if a write failed.
func (e *elector) step(ctx context.Context, l lock, began time.Time) error {
	missing := l.raw == nil
	if missing {
		l.sequence = max(e.lock.Grant, e.lock.sequence) // grants continue to rise
		l.Grant = l.sequence
	}
	e.lock = l
	vacant := e.vacant()
	e.follow(vacant)

	e.mu.Lock()
	mine, t := e.names(l), e.term
	e.mayHold = mine
	running := t != nil && t.over.IsZero()
	if t != nil && !t.lost && !missing && (!mine || l.Grant != t.grant) {
		t.lost = true
		if running {
			e.log.Warn("another process took the lock, leading ends", "holder", fmt.Sprintf("%x", l.Holder))
		}
		t.cancel()
	}
	lost := t != nil && t.lost
	standing, standsBack := e.standing(), e.standsBack()
	e.mu.Unlock()

	switch {
	case running && missing:
		return e.swap(ctx, lock{Holder: e.id, Incarnation: e.incarnation, Grant: t.grant,
			sequence: max(l.sequence, t.grant)}.encode())
	case running && !lost && l.Challenge != 0:
		return e.swap(ctx, l.challengedBy(0)) // the answer
	case running:
		return nil
	case lost:
		e.finish(t, e.wasTransferred(t))
		return nil
	case t != nil:
		return e.release(ctx, t)
	case mine && (!standing || l.Grant == e.spent):
		err := e.swap(ctx, l.grantTo(0, 0))
		if err == nil {
			e.PollNow() // to see that it is released
		}
		return err
	case mine:
		e.begin(l)
		return nil
	case !standing || standsBack:
		e.resolveResignation()
		return nil
	case vacant:
		return e.acquire(ctx)
	}
	return e.contest(ctx, began)
}

// acquire swaps the lock row. An answer of the holder that came first makes the swap fail.
func (e *elector) acquire(ctx context.Context) error {
	e.mu.Lock()
	standing := e.standing()
	e.mayHold = e.mayHold || standing // until the row is read again
	e.mu.Unlock()
	if !standing {
		return nil
	}
	if err := e.swap(ctx, e.lock.grantTo(e.id, e.incarnation)); err != nil {
		e.refused = true
		return err
	}
	if e.names(e.lock) {
		e.follow(false)
		e.begin(e.lock)
	}
	return nil
}

// swap replaces the row that was read last. A conflict is not an error: the row is read again at once.
func (e *elector) swap(ctx context.Context, next lock) error {
	batch := e.store.BeginBatchWrite()
	if e.lock.raw == nil {
		batch.PutIfNotExist(coder.LockKey(), next.raw)
	} else {
		batch.CAS(coder.LockKey(), next.raw, e.lock.raw)
	}
	ctx, cancel := context.WithTimeout(ctx, e.trips.bound(timing.WriteTimeout))
	defer cancel()
	err := batch.Commit(ctx)
	switch {
	case sqlstore.IsConflict(err):
		e.PollNow()
		return nil
	case err == nil || errors.Is(err, sqlstore.ErrRowMissing): // a missing row was written all the same
		e.lock = next
		return nil
	}
	return fmt.Errorf("writing the lock row: %w", err)
}

// begin starts lead.
func (e *elector) begin(l lock) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.PollNow() // to answer a challenge, or to release the lock
	if !e.standing() {
		return
	}
	ctx, cancel := context.WithCancel(e.base)
	t := &leadership{grant: l.Grant, begun: time.Now(), cancel: cancel}
	e.term = t
	e.log.Info("holding the lock, leading", "grant", l.Grant)
	e.leads.Go(func() {
		err := e.lead(ctx)
		alone := ctx.Err() == nil
		cancel()
		e.mu.Lock()
		defer e.mu.Unlock()
		t.over = time.Now()
		e.PollNow()
		if !alone {
			e.log.Info("stopped leading", "lost", t.lost, "result", err)
			return
		}
		e.failures++
		if t.over.Sub(t.begun) > timing.LongestStandBack {
			e.failures = 1
		}
		delay := min(timing.StandBack<<min(e.failures-1, 10), timing.LongestStandBack)
		e.standBack = t.over.Add(delay)
		if err == nil {
			e.log.Info("leading ended by itself, standing back", "for", delay)
			return
		}
		e.log.Error("leading failed, standing back", "error", err, "for", delay)
	})
}

// release releases the lock after lead has returned, to the successor if there is one.
func (e *elector) release(ctx context.Context, t *leadership) error {
	var successor Member
	if t.transfer != nil { // none is accepted once lead has returned
		successor = t.transfer.successor
	}
	if err := e.swap(ctx, e.lock.grantTo(successor.ID, successor.Incarnation)); err != nil {
		return err
	}
	switch {
	case e.names(e.lock):
		return nil // a conflict: the row is read again
	case successor.ID != 0:
		e.log.Info("handed the lock over", "successor", fmt.Sprintf("%x", successor.ID))
	default:
		e.log.Info("released the lock")
	}
	e.follow(e.vacant())
	e.finish(t, nil)
	return nil
}

// wasTransferred returns nil if an earlier attempt has handed the lock over to the successor,
// and ErrNotHolder if the lock was lost.
func (e *elector) wasTransferred(t *leadership) error {
	if t.transfer != nil && e.lock.Holder == t.transfer.successor.ID {
		return nil
	}
	e.log.Info("lock is already held by another member, nothing to release")
	return ErrNotHolder
}

// finish ends a leadership whose lead has returned.
func (e *elector) finish(t *leadership, err error) {
	e.mu.Lock()
	e.term, e.spent = nil, t.grant
	e.mu.Unlock()
	if t.transfer != nil {
		t.transfer.result <- err
	}
	e.resolveResignation()
}

// polled counts a poll that failed while the process leads. It also ends the release of
// the lock once that has taken longer than timing.ReleaseTimeout.
func (e *elector) polled(err error) {
	late := func(since time.Time) bool { return !since.IsZero() && time.Since(since) > timing.ReleaseTimeout }
	if err != nil {
		e.pending.missed(e.cfg.holderPoll())
	}
	e.mu.Lock()
	t, quit := e.term, e.quit
	expired := t != nil && late(t.over)
	e.mu.Unlock()
	if err != nil && t != nil {
		e.metrics.renewalFailures.Inc()
	}
	if expired {
		e.log.Warn("the lock could not be released; another member takes it once it was challenged", "error", err)
		e.finish(t, err)
	}
	if expired && !quit.IsZero() || t == nil && late(quit) {
		e.resign()
	}
}

// follow records who holds the lock.
func (e *elector) follow(vacant bool) {
	holder := e.lock.Holder
	if vacant {
		holder = 0
	}
	e.mu.Lock()
	e.holder = holder
	if e.hearing.grant != e.lock.Grant {
		e.hearing, e.pending = hearing{grant: e.lock.Grant, since: time.Now()}, pending{}
	}
	observed := e.observed
	changed := observed != nil && holder != e.reported
	if changed {
		e.reported = holder
	}
	e.mu.Unlock()
	if changed {
		observed(holder)
	}
}

// holds reports whether this process has the lock as far as it knows.
func (e *elector) holds() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term != nil && !e.term.lost
}

// stop ends the candidacy, without waiting.
func (e *elector) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.quit.IsZero() {
		return
	}
	e.quit = time.Now()
	if e.term != nil {
		e.term.cancel()
	} else if !e.mayHold {
		e.resign()
	}
	e.PollNow()
}

// resolveResignation calls resign if the process has stopped and holds nothing.
func (e *elector) resolveResignation() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.quit.IsZero() && e.term == nil && !e.names(e.lock) {
		e.resign()
	}
}

// shutDown ends lead's context, and waits until lead has returned.
func (e *elector) shutDown() {
	e.stop()
	e.leads.Wait()
	e.resign()
}
