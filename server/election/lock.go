package election

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// lockName is how client-go calls the lock in its log lines.
const lockName = "sqlbrain-leader"

var (
	errNotRead  = errors.New("election: the lock row was not read before it was to be changed")
	errConflict = errors.New("election: the lock row was changed by another")
)

// lock is the lock row as client-go's resourcelock.Interface. It tells the
// Elector what it saw and wrote, and asks it before it writes. Used by one
// goroutine, Run's: client-go calls it on the goroutine that runs the round.
//
// The contexts of client-go are not used: they end with a round, and a write cut
// off halfway would leave its outcome open for nothing. Calls are bounded by
// the operation timeout, and end with base.
type lock struct {
	base        context.Context
	store       sqlstore.Store
	log         *slog.Logger
	identity    string
	incarnation string
	timeout     time.Duration
	elector     observer

	// row is what the row held when it was last read or written; nil if it was
	// missing, or nothing is known.
	row *row
	// attempt is the newest write whose outcome is unknown, nil if there is
	// none.
	attempt *attempt
	// failing: the last read or write failed; so that an outage is logged once.
	failing bool
}

// attempt is a write with an unknown outcome.
type attempt struct {
	row        *row
	handedOver bool // what the row it replaced said
}

// observer is the Elector as its lock sees it.
type observer interface {
	// attempting: client-go is about to read or write.
	attempting()
	// saw returns how the row's holder reads; "" is released. nil: there is no
	// row.
	saw(r *row) (holder string)
	// mayWrite returns why the row must not be written now, or nil.
	mayWrite(replaced *row) error
	// wrote: the row names this process as the holder.
	wrote(r *row, handedOver bool)
	// failed: a read or a write failed.
	failed(err error)
}

var _ resourcelock.Interface = (*lock)(nil)

// Get implements resourcelock.Interface. The bytes it returns differ whenever
// the row does: they have the sequence, where the record itself has whole seconds.
func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.elector.attempting()
	ctx, cancel := context.WithTimeout(l.base, l.timeout)
	defer cancel()
	r, err := l.read(ctx)
	if err != nil {
		l.elector.failed(err)
		return nil, nil, err
	}
	holder := l.elector.saw(r)
	if r == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "row"}, lockName)
	}
	rec := r.LeaderElectionRecord
	rec.HolderIdentity = holder
	return &rec, append(bytes.Clone(r.raw), holder...), nil
}

// Create implements resourcelock.Interface.
func (l *lock) Create(_ context.Context, rec resourcelock.LeaderElectionRecord) error {
	return l.take(nil, rec)
}

// Update implements resourcelock.Interface. It replaces the row as it was last
// read or written.
func (l *lock) Update(_ context.Context, rec resourcelock.LeaderElectionRecord) error {
	if l.row == nil {
		return errNotRead
	}
	return l.take(l.row, rec)
}

// take writes a record that names this process, and tells the Elector.
func (l *lock) take(old *row, rec resourcelock.LeaderElectionRecord) error {
	l.elector.attempting()
	if err := l.elector.mayWrite(old); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(l.base, l.timeout)
	defer cancel()
	handedOver := old == nil || old.HandedOver
	if old != nil && l.attempt != nil && bytes.Equal(old.raw, l.attempt.row.raw) {
		handedOver = l.attempt.handedOver
	}
	r, err := l.write(ctx, old, record{LeaderElectionRecord: rec, Incarnation: l.incarnation})
	if err != nil {
		if r != nil {
			l.attempt = &attempt{row: r, handedOver: handedOver && !errors.Is(err, sqlstore.ErrRowMissing)}
		}
		l.elector.failed(err)
		return err
	}
	l.elector.wrote(r, handedOver)
	return nil
}

// RecordEvent implements resourcelock.Interface. The Elector logs its own.
func (l *lock) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (l *lock) Identity() string { return l.identity }

// Describe implements resourcelock.Interface.
func (l *lock) Describe() string { return lockName }

// ours reports whether this very process may hold the lock, by all it knows.
func (l *lock) ours() bool { return l.attempt != nil || l.row != nil && l.wroteHeld(l.row) }

// forget makes the lock know nothing of the row.
func (l *lock) forget() { l.row, l.attempt = nil, nil }

// wroteHeld: r is a record by which this process holds the lock.
func (l *lock) wroteHeld(r *row) bool {
	return r.HolderIdentity == l.identity && r.Incarnation == l.incarnation
}

// read returns the row, nil if there is none.
func (l *lock) read(ctx context.Context) (*row, error) {
	r, err := loadRow(ctx, l.store)
	if err != nil {
		l.trouble(err)
		return nil, err
	}
	l.recovered()
	l.row = r
	if a := l.attempt; a != nil && r != nil && r.sequence >= a.row.sequence && !bytes.Equal(r.raw, a.row.raw) {
		l.attempt = nil // the row has passed it
	}
	return r, nil
}

// write replaces old, nil to create the row. With an error, a row that is not
// nil may have been written, or may yet be.
func (l *lock) write(ctx context.Context, old *row, rec record) (*row, error) {
	r, err := encodeRow(old, rec)
	if err != nil {
		return nil, err
	}
	b := l.store.BeginBatchWrite()
	if old == nil {
		b.PutIfNotExist(coder.LockKey(), r.raw)
	} else {
		b.CAS(coder.LockKey(), r.raw, old.raw)
	}
	err = b.Commit(ctx)
	var conflict *sqlstore.Conflict
	switch {
	case err == nil:
		l.recovered()
		l.row, l.attempt = r, nil
		return r, nil
	case errors.As(err, &conflict):
		l.recovered()
		return nil, errConflict
	}
	err = fmt.Errorf("writing the lock row: %w", err)
	l.trouble(err)
	if errors.Is(err, sqlstore.ErrUncertain) || errors.Is(err, sqlstore.ErrRowMissing) {
		return r, err
	}
	return nil, err
}

func (l *lock) trouble(err error) {
	if !l.failing && l.base.Err() == nil {
		l.log.Warn("the lock row cannot be read or written, trying again", "error", err)
	}
	l.failing = true
}

func (l *lock) recovered() {
	if l.failing {
		l.log.Info("the lock row can be read and written again")
	}
	l.failing = false
}
