package membership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Registry is one process's membership. Its methods may be called from any
// goroutine; Run is called once. It has no goroutine of its own.
type Registry struct {
	cfg         Config
	store       sqlstore.Store
	log         *slog.Logger
	metrics     *metrics
	id          uint64
	incarnation uint64
	silenced    map[uint64]bool // Join's: incarnations of processes that have ended
	view        *view
	self        atomic.Pointer[Member]
	counted     []byte // Run's: the count of changes at its last look for them
	left        atomic.Bool
	asked       chan struct{} // signals Run that next was set

	mu     sync.Mutex
	looked chan struct{} // closed, and replaced, at each look
	next   *refresh      // asked for, and not begun

	endOnce sync.Once
	ended   chan struct{}
	err     error // set before ended is closed
}

// Self returns this member, as it was last seen in the table.
func (r *Registry) Self() Member { return *r.self.Load() }

// Ended is closed once this process is not the member any more; Err says why.
func (r *Registry) Ended() <-chan struct{} { return r.ended }

// Err returns nil until Ended is closed, and ErrRemoved or ErrReplaced from then on.
func (r *Registry) Err() error {
	select {
	case <-r.ended:
		return r.err
	default:
		return nil
	}
}

// Cached returns the members as they were last seen, ordered by id.
func (r *Registry) Cached() []Member { return slices.Clone(r.view.last()) }

// Members reads the members from the table, ordered by id.
func (r *Registry) Members(ctx context.Context) ([]Member, error) {
	_, members, err := r.look(ctx)
	return slices.Clone(members), err
}

// Find returns the member with this id. It reads the table only for one that it
// has not seen.
func (r *Registry) Find(ctx context.Context, id uint64) (Member, bool, error) {
	if m, ok := withID(r.view.last(), id); ok {
		return m, true, nil
	}
	_, members, err := r.look(ctx)
	if err != nil {
		return Member{}, false, err
	}
	m, ok := withID(members, id)
	return m, ok, nil
}

func withID(members []Member, id uint64) (Member, bool) {
	i := slices.IndexFunc(members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return members[i], true
}

// look reads the table, and takes in what is found.
func (r *Registry) look(ctx context.Context) (table, []Member, error) {
	read, now := r.view.begin(), time.Now()
	t, err := readTable(ctx, r.store)
	if err != nil {
		return nil, nil, err
	}
	members := r.view.apply(t, read, now)
	if r.Err() != nil {
		return t, members, nil
	}
	if err := r.judge(t); err != nil {
		r.end(err)
	} else if self, ok := withID(members, r.id); ok {
		r.sawSelf(self)
	}
	r.wake()
	return t, members, nil
}

// sawSelf takes in what the table has of this member.
func (r *Registry) sawSelf(self Member) {
	r.self.Store(&self)
	r.cfg.Certificate.Published(self.Fingerprint)
}

// judge says whether this process is still the member.
func (r *Registry) judge(t table) error {
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
		r.log.Error("this process is not a member of the cluster any more", "member", r.cfg.Name, "error", err)
	})
}

// raced reports whether a commit's error means to look at the table again: it
// was changed, or may have been changed by the commit itself.
func raced(err error) bool {
	var conflict *sqlstore.Conflict
	return errors.As(err, &conflict) || errors.Is(err, sqlstore.ErrUncertain)
}
