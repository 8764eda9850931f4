package member

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// Registry is one process's membership. Its methods may be called from any
// goroutine; Run is called once. It starts no goroutine.
type Registry struct {
	cfg         Config
	store       sqlstore.Store
	log         *slog.Logger
	metrics     *metrics
	id          uint64
	incarnation uint64
	silenced    map[uint64]bool // incarnations of processes that had ended; only Join writes it
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
	asked        chan struct{}                                     // signals Run that next was set
	pollNow      chan struct{}                                     // signals Run to poll at once; one slot
	piggyback    atomic.Pointer[func() ([][]byte, func([][]byte))] // nil: nothing

	// Run's goroutine only:
	listedAt                      time.Time // when Run last read the rows of all members
	counted                       []byte    // the count of changes at the last list of them
	heartbeatTrouble, lockTrouble bool      // the last heartbeat, or poll, failed

	mu     sync.Mutex
	looked chan struct{}    // closed, and replaced, at each list
	next   *refresh         // asked for, and not begun
	period *heartbeatPeriod // of feeds, the current one; nil before the first
	// misunderstood is the error of CheckProtocols that was logged last.
	misunderstood string

	endOnce sync.Once
	ended   chan struct{}
	err     error // set before ended is closed
}

// Self returns this member as it was last seen in the table; a zero Member if it was removed.
func (r *Registry) Self() Member {
	m, _ := withID(r.view.last(), r.id)
	return m
}

// Ended is closed once this process is no longer the member; Err returns why.
func (r *Registry) Ended() <-chan struct{} { return r.ended }

// Err returns nil until Ended is closed, and ErrRemoved or ErrReplaced afterwards.
func (r *Registry) Err() error {
	select {
	case <-r.ended:
		return r.err
	default:
		return nil
	}
}

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
func (r *Registry) Find(ctx context.Context, id uint64) (Member, bool, error) {
	if m, ok := withID(r.view.last(), id); ok {
		return m, true, nil
	}
	if _, err := r.list(ctx); err != nil {
		return Member{}, false, err
	}
	m, ok := withID(r.view.last(), id)
	return m, ok, nil
}

func withID(members []Member, id uint64) (Member, bool) {
	i := slices.IndexFunc(members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return members[i], true
}

// list reads the table and updates what this process knows of the members.
func (r *Registry) list(ctx context.Context) (table, error) {
	read, now := r.view.begin(), time.Now()
	t, err := readTable(ctx, r.store)
	if err != nil {
		return nil, err
	}
	members := r.view.apply(t, read, now)
	if r.Err() != nil {
		return t, nil
	}
	if err := r.endedBy(t); err != nil {
		r.end(err)
	} else if self, ok := withID(members, r.id); ok {
		r.cfg.Certificate.Published(self.Fingerprint)
	}
	r.noteProtocols()
	r.notifyLooked()
	return t, nil
}

// endedBy returns why this process is no longer the member, nil if it is.
func (r *Registry) endedBy(t table) error {
	own, ok := t.named(r.cfg.Name)
	switch {
	case !ok || own.ID != r.id:
		return ErrRemoved
	case own.Incarnation != r.incarnation:
		return ErrReplaced
	}
	return nil
}

func (r *Registry) end(err error) {
	r.endOnce.Do(func() {
		r.err = err
		close(r.ended)
		r.log.Error("this process is no longer a member of the cluster", "member", r.cfg.Name, "error", err)
		r.elector.stop()
	})
}

// again returns nil if the table is to be read again after a commit that failed with err, in the attempt of that
// number, counted from 1: another process has changed it, or the commit itself may have. Else it returns err. After an
// unknown outcome it pauses, because the database may not be able to say more for a while.
func again(ctx context.Context, err error, attempt int) error {
	var conflict *sqlstore.Conflict
	switch {
	case errors.As(err, &conflict):
		return nil
	case errors.Is(err, sqlstore.ErrUncertain) && retry.Database.Wait(ctx, attempt) == nil:
		return nil
	}
	return err
}
