package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

const (
	// refreshInterval is how often Run asks the database for its size.
	refreshInterval = 5 * time.Second
	// diskInterval is the shortest time between two looks at the free space while much is written. Less than the
	// reserve can be written in it.
	diskInterval = 100 * time.Millisecond
	// probeBytes is what a full database must take before it counts as one that has space.
	probeBytes = 64 << 10
)

// Space knows how much space the table takes: how many bytes its rows had at the last refresh, and
// what was written since. It also knows whether the disk is full. Safe for concurrent use.
type Space struct {
	store  sqlstore.Store
	view   auth.View // permits of Defragment are checked on it
	alarms *Alarms
	own    Alarm // raised while the disk is full, or when the quota is reached
	quota  int64
	log    *slog.Logger
	full   chan struct{}
	grown  chan struct{} // has a value if something was written since Run looked
	// defragmenting is held while Defragment runs: it needs a connection and the space of the table for itself.
	defragmenting *semaphore.Weighted

	mu           sync.Mutex
	total, inUse int64 // bytes, as of the last refresh
	noFile       bool  // the engine does not say how large its file is
	written      int64 // bytes written in all, less those removed
	counted      int64 // of written, those before the last refresh
	refreshes    int64 // how many have begun
	refreshed    int64 // the last of them whose result is above
	diskFull     bool
	scarce       bool // of the reserve of the disk, half is used
}

// NewSpace returns the space of store's table as the member sees it, with a quota in bytes; 0 is none.
func NewSpace(store sqlstore.Store, view auth.View, alarms *Alarms, member uint64, quota int64,
	log *slog.Logger) *Space {
	return &Space{
		store: store, view: view, alarms: alarms, own: Alarm{MemberID: member, Type: AlarmNoSpace}, quota: quota, log: log,
		full: make(chan struct{}, 1), grown: make(chan struct{}, 1), defragmenting: semaphore.NewWeighted(1),
	}
}

// Refresh reads how many bytes the table takes, and whether its disk is full. The size that it has read has no
// effect if a refresh that began later has ended before.
func (s *Space) Refresh(ctx context.Context) error {
	s.checkDisk(ctx, true)
	s.mu.Lock()
	s.refreshes++
	before, began, noFile := s.written, s.refreshes, s.noFile
	s.mu.Unlock()
	inUse, known, err := s.rowBytes(ctx)
	if err != nil {
		return err
	}
	var total, guess int64
	if !known || !noFile {
		if total, guess, err = s.store.Size(ctx); err != nil {
			return err
		}
	}
	if !known {
		inUse = guess
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if began >= s.refreshed {
		s.noFile = total == 0
		s.total, s.inUse, s.counted, s.refreshed = max(total, inUse), inUse, before, began
	}
	return nil
}

// rowBytes returns the bytes of all rows: those that commits count, and the few others. They are not known if the
// leader has not counted them yet. A table at revision 1 has none to count.
func (s *Space) rowBytes(ctx context.Context) (n int64, known bool, err error) {
	lo, hi := coder.UncountedBounds()
	m, token, removed, err := measure(ctx, s.store, sqlstore.MeasureQuery{Start: lo, End: hi})
	return m.Bytes + token.Bytes - removed, token.Bytes > 0 || token.Revision == 1, err
}

// Run refreshes the size every few seconds until ctx ends, and looks at the free space while something is written.
func (s *Space) Run(ctx context.Context) {
	tick := time.NewTicker(refreshInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			bounded, cancel := context.WithTimeout(ctx, refreshInterval)
			if err := s.Refresh(bounded); err != nil && ctx.Err() == nil {
				s.log.Warn("cannot read the size of the database", "error", err)
			}
			cancel()
		case <-s.grown:
			s.checkDisk(ctx, false)
			_ = retry.Sleep(ctx, diskInterval) // ctx ended: the loop sees it
		}
	}
}

// checkDisk finds out whether the disk of the database is full. Only with mayClear, a disk that was full may have
// space again.
func (s *Space) checkDisk(ctx context.Context, mayClear bool) {
	free, reserve, err := s.store.FreeSpace(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("cannot read the free space of the disk", "error", err)
		}
		return
	}
	s.mu.Lock()
	s.scarce = free < reserve/2
	s.mu.Unlock()
	switch {
	case free < reserve:
		s.setDiskFull(fmt.Errorf("%d bytes are free, the last %d are for deletes, and half of them for compaction alone",
			free, reserve))
	case mayClear && s.isDiskFull() && free >= reserve+reserve/4: // not again and again at the limit
		if err := s.probe(ctx); err == nil {
			s.setDiskFull(nil)
		}
	}
}

// probe returns nil if the database has space for probeBytes: it writes them to the probe row, and takes them back.
func (s *Space) probe(ctx context.Context) error {
	for _, value := range [][]byte{make([]byte, probeBytes), coder.EncodeInt64(time.Now().Unix())} {
		batch := s.store.BeginBatchWrite()
		batch.Put(coder.ProbeKey(), value)
		if err := batch.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Refused takes note of the error of a commit. If the database has no space left, the disk counts as full until Run
// finds that it is not.
func (s *Space) Refused(err error) {
	if errors.Is(err, sqlstore.ErrFull) {
		s.setDiskFull(err)
	}
}

// setDiskFull records why the disk counts as full; nil: it does not. While it is, puts are refused, and this node has
// a NOSPACE alarm, which is not in the table: there is no space for it.
func (s *Space) setDiskFull(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := why != nil
	if full == s.diskFull {
		return
	}
	s.diskFull = full
	s.alarms.setUnstored(s.own, full)
	if full {
		s.log.Error("the disk of the database is full, refusing puts until it has space", "error", why)
	} else {
		s.log.Info("the disk of the database has space again")
	}
}

func (s *Space) isDiskFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.diskFull
}

// Defragment lets the engine release unused space. Calls wait for each other. Errors: those of as, the database's,
// ctx's.
func (s *Space) Defragment(ctx context.Context, as auth.Permit) error {
	if err := as.Check(ctx, s.view); err != nil {
		return err
	}
	if err := s.defragmenting.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.defragmenting.Release(1)
	if err := s.store.Defragment(ctx); err != nil {
		return err
	}
	return s.Refresh(ctx)
}

// Grow counts n bytes that were written, or, if it is negative, removed.
func (s *Space) Grow(n int64) {
	s.mu.Lock()
	s.written += n
	s.mu.Unlock()
	select {
	case s.grown <- struct{}{}:
	default: // Run has not looked since the last one
	}
}

// Size returns the bytes of the engine's file, and those of all rows, as of the last refresh. Where the engine has no
// file, or does not say its size, both are those of the rows.
func (s *Space) Size() (total, inUse int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.inUse
}

// Quota returns the space quota in bytes, 0 for none.
func (s *Space) Quota() int64 { return s.quota }

// Admit returns the error of the transaction t while alarms are raised or space is short, see
// Alarms.CheckWrite, Check and CheckDelete.
func (s *Space) Admit(t *mvcc.Txn) error {
	if !t.Puts() {
		return s.CheckDelete()
	}
	if err := s.alarms.CheckWrite(true); err != nil {
		return err
	}
	return s.Check(t.Cost())
}

// Check returns ErrNoSpace if a write of about cost bytes would reach the quota. It then
// requests the NOSPACE alarm, see RaiseAlarms.
func (s *Space) Check(cost int64) error {
	if s.fits(cost) {
		return nil
	}
	if !s.alarms.NoSpace() {
		select {
		case s.full <- struct{}{}:
		default: // requested already
		}
	}
	return ErrNoSpace
}

// CheckDelete returns the error of a write that only deletes: ErrCorrupt while that alarm is raised, or ErrNoSpace if
// what is left of the disk is for compaction: what is deleted takes space until it is compacted.
func (s *Space) CheckDelete() error {
	if err := s.alarms.CheckWrite(false); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scarce {
		return ErrNoSpace
	}
	return nil
}

// RaiseAlarms raises the NOSPACE alarm when a write would have reached the quota, until ctx ends. The
// node must lead.
func (s *Space) RaiseAlarms(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.full:
			if _, err := s.alarms.Raise(ctx, auth.System, s.own); err != nil && ctx.Err() == nil {
				s.log.Warn("raising the NOSPACE alarm failed", "error", err)
			}
		}
	}
}

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
