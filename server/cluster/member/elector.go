package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// elector is this process's part in the election. Registry.Run calls step with each lock row
// that it has read. The row alone decides what step does, so earlier writes with an unknown
// outcome need not be resolved.
type elector struct {
	cfg         Config
	log         *slog.Logger
	metrics     *metrics
	id          uint64
	incarnation uint64
	wake        func() // makes Run read the lock row at once
	trips       *trips

	// Only Run's goroutine uses these.
	base    context.Context
	lock    lock          // as last read or written
	clock   time.Duration // the view's clock when the row was read
	since   time.Duration // on that clock: the row has been the same since then
	retryAt time.Duration // on that clock: no attempt to take the lock before
	refused bool          // the last attempt failed: the database may take no writes

	leads    sync.WaitGroup // calls of lead
	resigned chan struct{}  // closed by resign
	resign   func()         // called once nothing is left to release

	mu       sync.Mutex
	lead     func(context.Context) error // nil before Campaign
	observed func(holder uint64)
	quit     time.Time          // when the process resigned; zero before
	attempt  context.CancelFunc // ends the current attempt to take the lock; nil: none
	unsure   bool               // this process may hold the lock, as far as it knows
	term     *leadership        // nil while the process neither leads nor has to release
	spent    int64              // the grant of the last leadership that is over
	holder   uint64             // the member that has the lock, 0 if none
	told     uint64             // the holder that observed was last called with
	last     uint64             // the last holder that was not 0
	backoff  standBack
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

// vacancy says why the lock may be taken.
type vacancy int

const (
	held     vacancy = iota
	doubtful         // its holder has been silent for a part of the lease, and was not asked yet
	expired          // its holder has been silent for the lease, and left a challenge unanswered
	vacant           // it was released, or its holder's process is gone
)

func newElector(r *Registry) *elector {
	e := &elector{
		cfg: r.cfg, log: r.log.With("member", fmt.Sprintf("%x", r.id)), metrics: r.metrics,
		id: r.id, incarnation: r.incarnation, wake: r.Retry, trips: &r.trips, resigned: make(chan struct{}),
	}
	e.resign = sync.OnceFunc(func() { close(e.resigned) })
	return e
}

// standing reports whether the process may take the lock. e.mu is held.
func (e *elector) standing() bool { return e.lead != nil && e.quit.IsZero() }

// vacancy reports whether the lock may be taken. holder is the holder's member row, nil if it
// is not a member, and s what was seen of it.
func (e *elector) vacancy(holder *entry, s sighting) vacancy {
	l := e.lock
	switch {
	case l.holder == 0:
		return vacant
	case holder == nil || holder.Stopped || holder.Incarnation != l.incarnation || s.gone:
		return vacant
	}
	lease, silence := e.cfg.LeaseDuration, e.clock-max(s.since, e.since)
	twoLooks := 2 * e.cfg.glanceInterval()
	if holder.answers() > e.cfg.answerInterval {
		twoLooks = 2 * holder.answers()
	}
	switch {
	case !s.asked && silence >= lease/timing.DoubtAfter:
		return doubtful
	case silence >= lease && e.clock-s.askedAt >= max(lease/timing.ChallengeShare, twoLooks):
		return expired
	}
	return held
}

// names reports whether l is a grant to this process.
func (e *elector) names(l lock) bool {
	return l.holder == e.id && l.incarnation == e.incarnation
}

// step acts on the lock row that was just read. holder is the row of the member that holds
// the lock, and s what was seen of it. The error is the database's if a write failed.
func (e *elector) step(ctx context.Context, l lock, holder *entry, clock time.Duration, s sighting) error {
	e.clock = clock
	if !bytes.Equal(l.raw, e.lock.raw) {
		e.since = clock
	}
	missing := l.raw == nil
	if missing {
		l.sequence = max(e.lock.grant, e.lock.sequence) // grants continue to rise
		l.grant = l.sequence
	}
	e.lock = l
	v := e.vacancy(holder, s)
	e.note(l.holder, v)

	e.mu.Lock()
	e.unsure = e.names(l)
	t, standing := e.term, e.standing()
	var running, lost bool
	if t != nil {
		running, lost = t.over.IsZero(), t.lost
		if !missing && (!e.names(l) || l.grant != t.grant) && !lost {
			t.lost, lost = true, true
			if running {
				e.log.Warn("another process took the lock, leading ends", "holder", fmt.Sprintf("%x", l.holder))
			}
			t.cancel()
		}
	}
	mayAct := standing && v != held && clock >= e.retryAt && !e.backoff.active()
	e.mu.Unlock()

	switch {
	case t != nil && running && missing:
		restored := lock{holder: e.id, incarnation: e.incarnation, grant: t.grant,
			sequence: max(l.sequence, t.grant)}.encode()
		return e.swap(ctx, &restored, nil)
	case t != nil && running:
		return nil
	case t != nil && lost:
		e.finish(t, e.wasTransferred(t))
		return nil
	case t != nil:
		return e.release(ctx, t)
	case e.names(l) && (!standing || l.grant == e.spent):
		err := e.swap(ctx, l.grantTo(0, 0), nil)
		if err == nil {
			e.wake() // to see that it is released
		}
		return err
	case e.names(l):
		e.begin(l)
		return nil
	case !mayAct:
		e.settle()
		return nil
	case v == doubtful:
		return e.swap(ctx, nil, holder)
	case v == vacant && !s.gone:
		holder = nil // its heartbeats make no difference
	case e.refused:
		return e.probe(ctx, holder)
	}
	return e.take(ctx, holder)
}

// probe challenges a silent holder after an attempt to take the lock has failed. The database
// may take no writes: then the holder cannot send heartbeats, and is replaced only after it
// had time to send one.
func (e *elector) probe(ctx context.Context, silent *entry) error {
	err := e.swap(ctx, nil, silent)
	if err == nil {
		e.refused, e.retryAt = false, e.clock+2*e.cfg.RetryPeriod
	}
	return err
}

// take swaps the lock row. If the holder counts as silent, the same commit challenges it, so
// that a heartbeat that came first makes the commit fail.
func (e *elector) take(ctx context.Context, silent *entry) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.mu.Lock()
	if !e.standing() {
		e.mu.Unlock()
		return nil
	}
	e.attempt, e.unsure = cancel, true
	e.mu.Unlock()
	err := e.swap(ctx, e.lock.grantTo(e.id, e.incarnation), silent)
	e.mu.Lock()
	e.attempt = nil
	e.unsure = e.names(e.lock) || errors.Is(err, sqlstore.ErrUncertain)
	e.mu.Unlock()
	if err != nil {
		e.refused = true
		return err
	}
	if e.names(e.lock) {
		e.note(e.id, held)
		e.begin(e.lock)
	}
	return nil
}

// swap replaces the row that was read last, and challenges a member; either may be nil. A
// conflict is not an error: the row is read again at once.
func (e *elector) swap(ctx context.Context, next *lock, challenged *entry) error {
	batch := e.cfg.Store.BeginBatchWrite()
	switch {
	case next == nil:
		next = &e.lock
	case e.lock.raw == nil:
		batch.PutIfNotExist(coder.LockKey(), next.raw)
	default:
		batch.CAS(coder.LockKey(), next.raw, e.lock.raw)
	}
	if challenged != nil {
		row := challenged.row
		row.Challenge = newID()
		batch.CAS(challenged.key(), row.encode(), challenged.raw)
	}
	most := e.cfg.farTimeout()
	if !e.names(e.lock) { // a candidate has no lease to renew
		most = timing.HeartbeatTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, e.trips.atLeast(e.cfg.leaderTimeout(), most))
	defer cancel()
	err := batch.Commit(ctx)
	var conflict *sqlstore.Conflict
	switch {
	case errors.As(err, &conflict):
		e.wake()
		return nil
	case err == nil || errors.Is(err, sqlstore.ErrRowMissing): // a missing row was written all the same
		if !bytes.Equal(next.raw, e.lock.raw) {
			e.lock, e.since = *next, e.clock
		}
		return nil
	}
	return fmt.Errorf("writing the lock row: %w", err)
}

// begin starts lead.
func (e *elector) begin(l lock) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wake() // to send a heartbeat, or to release the lock
	if !e.standing() {
		return
	}
	ctx, cancel := context.WithCancel(e.base)
	t := &leadership{grant: l.grant, begun: time.Now(), cancel: cancel}
	e.term = t
	e.metrics.isLeader.Set(1)
	e.log.Info("holding the lock, leading", "grant", l.grant)
	e.leads.Go(func() {
		err := e.lead(ctx)
		alone := ctx.Err() == nil
		cancel()
		e.mu.Lock()
		defer e.mu.Unlock()
		t.over = time.Now()
		e.metrics.isLeader.Set(0)
		e.ended(t, err, alone)
		e.wake()
	})
}

// ended handles a lead that has returned. e.mu is held.
func (e *elector) ended(t *leadership, err error, alone bool) {
	if !alone {
		e.log.Info("stopped leading", "lost", t.lost, "result", err)
		return
	}
	delay := e.backoff.after(t.over.Sub(t.begun), e.cfg.RetryPeriod)
	if err == nil {
		e.log.Info("leading ended by itself, standing back", "for", delay)
		return
	}
	e.metrics.leadFailures.Inc()
	e.log.Error("leading failed, standing back", "error", err, "for", delay)
}

// release releases the lock after lead has returned, to the successor if there is one.
func (e *elector) release(ctx context.Context, t *leadership) error {
	var successor Member
	e.mu.Lock()
	if t.transfer != nil {
		successor = t.transfer.successor
	}
	e.mu.Unlock()
	if err := e.swap(ctx, e.lock.grantTo(successor.ID, successor.Incarnation), nil); err != nil {
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
	e.note(successor.ID, held)
	e.finish(t, nil)
	return nil
}

// wasTransferred returns nil if an earlier attempt has handed the lock over to the successor,
// and ErrNotHolder if the lock was lost.
func (e *elector) wasTransferred(t *leadership) error {
	if t.transfer != nil && e.lock.holder == t.transfer.successor.ID {
		return nil
	}
	e.log.Info("the lock to be released is another's already")
	return ErrNotHolder
}

// finish ends a leadership whose lead has returned.
func (e *elector) finish(t *leadership, err error) {
	e.mu.Lock()
	e.term, e.spent = nil, t.grant
	transfer := t.transfer // none is accepted once lead has returned
	e.mu.Unlock()
	if transfer != nil {
		transfer.result <- err
	}
	e.settle()
}

// glanced counts a glance that failed while the process leads. It also ends the release of
// the lock once that has taken longer than the renew deadline.
func (e *elector) glanced(err error) {
	late := func(since time.Time) bool { return !since.IsZero() && time.Since(since) > e.cfg.RenewDeadline }
	e.mu.Lock()
	t, quit := e.term, e.quit
	expired := t != nil && late(t.over)
	e.mu.Unlock()
	if err != nil && t != nil {
		e.metrics.renewalFailures.Inc()
	}
	if expired {
		e.log.Warn("the lock could not be released, it expires by itself", "error", err)
		e.finish(t, err)
	}
	if expired && !quit.IsZero() || t == nil && late(quit) {
		e.resign()
	}
}

// note records who holds the lock.
func (e *elector) note(holder uint64, v vacancy) {
	if v == vacant {
		holder = 0
	}
	e.mu.Lock()
	e.holder = holder
	if holder != 0 && holder != e.last {
		e.last = holder
		e.metrics.transitions.Inc()
	}
	observed := e.observed
	changed := observed != nil && holder != e.told
	if changed {
		e.told = holder
	}
	e.mu.Unlock()
	if changed {
		observed(holder)
	}
}

// holds reports whether this process has the lock as far as it knows: its heartbeats
// keep it.
func (e *elector) holds() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term != nil && !e.term.lost
}

// follows returns the member that leads instead of this process; 0 while this process leads, or may
// have something to do about the lock.
func (e *elector) follows() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term != nil || e.unsure || !e.quit.IsZero() || e.holder == e.id {
		return 0
	}
	return e.holder
}

// stop ends the candidacy, without waiting.
func (e *elector) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.quit.IsZero() {
		return
	}
	e.quit = time.Now()
	if e.attempt != nil {
		e.attempt()
	}
	if e.term != nil {
		e.term.cancel()
	} else if !e.unsure {
		e.resign()
	}
	e.wake()
}

// settle calls resign if the process has stopped and holds nothing.
func (e *elector) settle() {
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
