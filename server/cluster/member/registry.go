package member

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/server/coalesce"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// Registry is one process's membership. Its methods may be called from any
// goroutine; Run is called once.
type Registry struct {
	cfg         Config
	store       sqlstore.Store
	log         *slog.Logger
	metrics     *metrics
	id          uint64
	incarnation uint64
	view        *view
	elector     *elector
	left        atomic.Bool
	trips       trips
	began       time.Time
	// when the table last showed that this process has the lock, since began
	kept     atomic.Int64
	polledAt atomic.Int64 // when the last poll began, since began
	// when a feed of this process ended last, since began; 0: never
	feedEnded    atomic.Int64
	commitFailed atomic.Bool                                       // since the last poll
	pollNow      chan struct{}                                     // signals Run to poll at once; one slot
	piggyback    atomic.Pointer[func() ([][]byte, func([][]byte))] // nil: nothing

	refreshes *coalesce.Group[struct{}]
	refreshed time.Time // when the last of them began

	// Run's goroutine only:
	listedAt                      time.Time     // when it last read the rows of all members
	counted                       []byte        // the count of changes at the last list of them
	heartbeatDue                  time.Time     // when it sends the next heartbeat
	heartbeatPause                time.Duration // between the last one and that
	heartbeatTrouble, lockTrouble bool          // the last heartbeat, or poll, failed

	mu              sync.Mutex
	listed          chan struct{}   // closed, and replaced, at each list
	period          context.Context // between two heartbeats of feeds
	endPeriod       context.CancelFunc
	protocolTrouble bool // CheckProtocols failed at the last list

	member context.Context // ends with the reason why this process is no longer the member
	end    context.CancelCauseFunc
}

// Self returns this member as it was last seen in the table; a zero Member if it was removed.
func (r *Registry) Self() Member {
	m, _ := withID(r.view.last(), r.id)
	return m
}

// Ended is closed once this process is no longer the member; Err returns why.
func (r *Registry) Ended() <-chan struct{} { return r.member.Done() }

// Err returns nil until Ended is closed, and ErrRemoved or ErrReplaced afterwards.
func (r *Registry) Err() error { return context.Cause(r.member) }

// PiggybackRead adds keys to the query of each poll; it saves a separate one. keys is called before the query, and
// the callback that it returns with their values after it. Neither may block; the keys may be nil.
func (r *Registry) PiggybackRead(keys func() (keys [][]byte, found func(rows [][]byte))) {
	r.piggyback.Store(&keys)
}

// Cached returns the members as they were last seen, ordered by id.
func (r *Registry) Cached() []Member { return slices.Clone(r.view.last()) }

// Members reads the members from the table, ordered by id.
func (r *Registry) Members(ctx context.Context) ([]Member, error) {
	if _, err := r.list(ctx); err != nil {
		return nil, err
	}
	return r.Cached(), nil
}

// Find returns the member with this id. It reads the table only for one that it
// has not seen.
func (r *Registry) Find(ctx context.Context, id uint64) (m Member, found bool, err error) {
	if m, found = withID(r.view.last(), id); !found {
		_, err = r.list(ctx)
		m, found = withID(r.view.last(), id)
	}
	return m, found, err
}

// list reads the table and updates what this process knows of the members.
func (r *Registry) list(ctx context.Context) (t table, err error) {
	began := time.Now()
	if t, err = readTable(ctx, r.store); err != nil {
		return t, err
	}
	r.view.apply(t, began)
	if r.Err() != nil {
		return t, nil
	}
	switch own, ok := t.named(r.cfg.Name); {
	case !ok || own.ID != r.id:
		r.end(ErrRemoved)
	case own.Incarnation != r.incarnation:
		r.end(ErrReplaced)
	default:
		r.cfg.Certificate.Published(own.Fingerprint)
	}
	if err := r.Err(); err != nil {
		r.log.Error("this process is no longer a member of the cluster", "name", r.cfg.Name, "error", err)
		r.elector.stop()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logTrouble(&r.protocolTrouble, slog.LevelError, r.CheckProtocols(),
		"this process and another member do not understand each other; stop one of them",
		"all members understand each other again")
	close(r.listed)
	r.listed = make(chan struct{})
	return t, nil
}

// listCurrent is list, and fails with what ended the Registry if it has.
func (r *Registry) listCurrent(ctx context.Context) (table, error) {
	t, err := r.list(ctx)
	if err == nil {
		err = r.Err()
	}
	return t, err
}

// errDone ends commit without a commit and without an error: nothing is left to change.
var errDone = errors.New("member: nothing to change")

// commit commits what fill adds to a batch. It calls fill again, with a new batch, if another process has changed what
// the batch depends on, or if the outcome is unknown; maybe reports that an earlier batch may have taken effect. It
// ends with an error of fill, or of the database. After an unknown outcome it pauses, because the database may not be
// able to say more for a while.
func commit(ctx context.Context, store sqlstore.Store, fill func(batch sqlstore.BatchWrite, maybe bool) error) error {
	maybe := false
	for failures := 1; ; failures++ {
		batch := store.BeginBatchWrite()
		if err := fill(batch, maybe); err != nil {
			if errors.Is(err, errDone) {
				return nil
			}
			return err
		}
		err := batch.Commit(ctx)
		uncertain := errors.Is(err, sqlstore.ErrUncertain)
		maybe = maybe || uncertain
		if !sqlstore.IsConflict(err) && (!uncertain || retry.Database.Wait(ctx, failures) != nil) {
			return err
		}
	}
}

// Refresh waits for a read of all member rows that begins after the call. Callers share reads, and there is at most one
// in timing.RefreshPause, so Refresh may be called for every connection of an unknown process.
func (r *Registry) Refresh(ctx context.Context) error {
	_, err := r.refreshes.Get(ctx)
	return err
}

func (r *Registry) refresh(ctx context.Context) (struct{}, error) {
	if err := retry.Sleep(ctx, timing.RefreshPause-time.Since(r.refreshed)); err != nil {
		return struct{}{}, err
	}
	r.refreshed = time.Now()
	_, err := r.list(sqlstore.Urgent(ctx))
	return struct{}{}, err
}

// Listed returns a channel that is closed when the member rows are read next.
func (r *Registry) Listed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed
}
