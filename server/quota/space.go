package quota

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// refreshInterval is how often Run asks the database for its size.
const refreshInterval = 5 * time.Second

// Space knows about how much space the table takes: what the database reported last, and
// what was written since. Safe for concurrent use.
type Space struct {
	store  sqlstore.Store
	alarms *Alarms
	quota  int64
	full   chan struct{}
	// defragmenting is held while Defragment runs: it needs a connection and the space of the table for itself.
	defragmenting *semaphore.Weighted

	mu           sync.Mutex
	total, inUse int64 // bytes, as of the last refresh
	written      int64 // bytes written in all
	counted      int64 // of written, those before the last refresh
}

// NewSpace returns the space of store's table, with a quota in bytes; 0 is none.
func NewSpace(store sqlstore.Store, alarms *Alarms, quota int64) *Space {
	return &Space{store: store, alarms: alarms, quota: quota, full: make(chan struct{}, 1), defragmenting: semaphore.NewWeighted(1)}
}

// Refresh asks the database for the size of the table. It has no effect if a refresh that began after more was
// written has ended before.
func (s *Space) Refresh(ctx context.Context) error {
	s.mu.Lock()
	before := s.written
	s.mu.Unlock()
	total, inUse, err := s.store.Size(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before >= s.counted {
		s.total, s.inUse, s.counted = total, inUse, before
	}
	return nil
}

// Run refreshes the size every few seconds until ctx ends.
func (s *Space) Run(ctx context.Context, log *slog.Logger) {
	for range retry.Every(ctx, refreshInterval) {
		bounded, cancel := context.WithTimeout(ctx, refreshInterval)
		if err := s.Refresh(bounded); err != nil && ctx.Err() == nil {
			log.Warn("cannot read the size of the database", "error", err)
		}
		cancel()
	}
}

// Defragment lets the engine release unused space. Calls wait for each other. Errors: the database's, ctx's.
func (s *Space) Defragment(ctx context.Context) error {
	if err := s.defragmenting.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.defragmenting.Release(1)
	if err := s.store.Defragment(ctx); err != nil {
		return err
	}
	return s.Refresh(ctx)
}

// Grow counts n bytes that were written.
func (s *Space) Grow(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written += n
}

// Size returns the bytes that the table has and uses, as of the last refresh.
func (s *Space) Size() (total, inUse int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.inUse
}

// Quota returns the space quota in bytes, 0 for none.
func (s *Space) Quota() int64 { return s.quota }

// Check returns ErrNoSpace if a write of about cost bytes would reach the quota. It then
// requests the NOSPACE alarm, see Full.
func (s *Space) Check(cost int64) error {
	if s.fits(cost) {
		return nil
	}
	if !s.alarms.any(AlarmNoSpace) {
		select {
		case s.full <- struct{}{}:
		default: // requested already
		}
	}
	return ErrNoSpace
}

// Full receives a value when a write would have reached the quota while no NOSPACE alarm
// was raised. The leader then raises the alarm.
func (s *Space) Full() <-chan struct{} { return s.full }

// Withdraw withdraws a request of the alarm that nothing has received. A node that begins to lead
// calls it: the write was refused when it led last, and there may be space now.
func (s *Space) Withdraw() {
	select {
	case <-s.full:
	default:
	}
}

// fits reports whether a write of about cost bytes stays below the quota. Free pages
// count as free.
func (s *Space) fits(cost int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quota <= 0 || s.inUse+s.written-s.counted+cost < s.quota
}
