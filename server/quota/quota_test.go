package quota

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// table is a store whose size is set by the test.
type table struct {
	sqlstore.Store
	bytes int64
	// free and reserve are what FreeSpace returns, and full makes commits fail.
	free, reserve atomic.Int64
	full          atomic.Bool
	// reading is called while the alarms are read.
	reading func()
	sizing  func() // the same for the size
	// rewriting is the same for Defragment.
	rewriting func()
}

func (s *table) Defragment(context.Context) error {
	s.rewriting()
	return nil
}

func (s *table) Size(context.Context) (total, inUse int64, err error) {
	if s.sizing != nil {
		s.sizing()
	}
	return s.bytes, s.bytes, nil
}

func (s *table) FreeSpace(context.Context) (free, reserve int64, err error) {
	return s.free.Load(), s.reserve.Load(), nil
}

func (s *table) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if s.full.Load() {
			return sqlstore.ErrFull
		}
		return b.BatchWrite.Commit(ctx)
	})
}

func (s *table) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	if s.reading != nil {
		s.reading()
	}
	return s.Store.Iter(ctx, r)
}

func newSpace(t *testing.T, store sqlstore.Store, alarms *Alarms, quota int64) *Space {
	return NewSpace(store, nil, alarms, 1, quota, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

// newAlarms returns alarms of a node that cannot change them.
func newAlarms(store sqlstore.Store) *Alarms {
	return NewAlarms(store, nil, slog.New(slog.DiscardHandler))
}

func newTable(t *testing.T) *table {
	s := &table{Store: memstore.New()}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Each run takes a connection to the database and room for a second table, and any number of clients may ask for one.
func TestDefragmentRunsOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTable(t)
		s := newSpace(t, store, newAlarms(store), 0)
		proceed := make(chan struct{})
		var running atomic.Int32
		store.rewriting = func() {
			running.Add(1)
			<-proceed
			running.Add(-1)
		}
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				if err := s.Defragment(t.Context(), auth.System); err != nil {
					t.Error(err)
				}
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		synctest.Wait()
		if n := running.Load(); n != 1 {
			t.Errorf("%d calls run", n)
		}
		calls.Go(func() {
			if err := s.Defragment(ctx, auth.System); !errors.Is(err, context.Canceled) {
				t.Errorf("a call that was cancelled while it waited: %v", err)
			}
		})
		cancel()
		synctest.Wait()
		close(proceed)
		calls.Wait()
	})
}

func TestSpaceCountsWhatWasWrittenSinceRefresh(t *testing.T) {
	store := newTable(t)
	s := newSpace(t, store, newAlarms(store), 1000)
	store.bytes = 400
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Grow(300)
	if err := s.Check(299); err != nil {
		t.Errorf("a write below the quota: %v", err)
	}
	if err := s.Check(300); !errors.Is(err, ErrNoSpace) {
		t.Errorf("a write that reaches the quota: %v", err)
	}
	store.bytes = 500
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(499); err != nil {
		t.Errorf("what was written is counted twice: %v", err)
	}
	store.sizing = func() { s.Grow(300) } // it may be in the size that is being read, or not
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(200); !errors.Is(err, ErrNoSpace) {
		t.Errorf("what was written during the refresh is not counted: %v", err)
	}
	if err := newSpace(t, store, newAlarms(store), 0).Check(1 << 40); err != nil {
		t.Errorf("without a quota: %v", err)
	}
}

// Run refreshes, and so does each Defragment.
func TestConcurrentRefreshesCountWhatWasWrittenOnce(t *testing.T) {
	store := newTable(t)
	s := newSpace(t, store, newAlarms(store), 1000)
	s.Grow(400)
	store.sizing = func() {
		store.sizing = func() {}
		s.Grow(100)
		store.bytes = 500
		if err := s.Refresh(t.Context()); err != nil { // began later, and ends before
			t.Error(err)
		}
		store.bytes = 400
	}
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(499); err != nil {
		t.Errorf("a write below the quota: %v", err)
	}
	if err := s.Check(500); !errors.Is(err, ErrNoSpace) {
		t.Errorf("a write that reaches the quota: %v", err)
	}
}

func TestExceededQuotaRequestsTheAlarmOnce(t *testing.T) {
	store := newTable(t)
	alarms := newAlarms(store)
	s := newSpace(t, store, alarms, 1)
	for range 3 {
		if err := s.Check(1); !errors.Is(err, ErrNoSpace) {
			t.Fatal(err)
		}
	}
	<-s.full
	alarms.set(Alarm{MemberID: 1, Type: AlarmNoSpace}, true)
	if err := s.Check(1); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	select {
	case <-s.full:
		t.Error("the alarm is requested although it is raised")
	default:
	}
}

// checkDiskFull fails the test unless puts are refused, the alarm is raised and not in the table, and deletes are
// accepted; or, if not full, unless there is no alarm.
func checkDiskFull(t *testing.T, a *Alarms, full bool) {
	t.Helper()
	if err := a.CheckWrite(true); errors.Is(err, ErrNoSpace) != full || err != nil && !full {
		t.Errorf("a put: %v", err)
	}
	if err := a.CheckWrite(false); err != nil {
		t.Errorf("a delete: %v", err)
	}
	var want []Alarm
	if full {
		want = []Alarm{{1, AlarmNoSpace}}
	}
	if all := a.All(); !slices.Equal(all, want) || len(a.Stored()) > 0 {
		t.Errorf("alarms %v, in the table %v, want %v, none in the table", all, a.Stored(), want)
	}
}

func TestFullDiskRaisesAlarmUntilItHasSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTable(t)
		alarms := newAlarms(store)
		s := newSpace(t, store, alarms, 0)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		defer running.Wait()
		defer cancel()
		steps := func(free int64, wait time.Duration, full bool) {
			t.Helper()
			store.free.Store(free)
			time.Sleep(wait)
			synctest.Wait()
			checkDiskFull(t, alarms, full)
		}
		store.reserve.Store(1000)
		steps(1000, refreshInterval, false)
		steps(999, refreshInterval, true)
		steps(1249, refreshInterval, true)
		steps(1250, refreshInterval, false)
		for range 3 { // while much is written it is noticed soon
			s.Grow(1)
			s.Grow(1)
			steps(999, diskInterval, true)
			s.Grow(1)
			steps(5000, diskInterval, true)
			steps(5000, refreshInterval, false)
		}

		// What the database says counts too, whatever the disk says.
		s.Refused(sqlstore.ErrUnavailable)
		checkDiskFull(t, alarms, false)
		store.full.Store(true)
		s.Refused(sqlstore.ErrFull)
		checkDiskFull(t, alarms, true)
		steps(5000, time.Minute, true)
		store.full.Store(false)
		steps(5000, refreshInterval, false)
	})
}

func TestAlarmsRefuseWrites(t *testing.T) {
	a := newAlarms(newTable(t))
	check := func(noSpace, corrupt bool) {
		t.Helper()
		switch err := a.CheckWrite(true); {
		case corrupt && !errors.Is(err, ErrCorrupt), !corrupt && noSpace && !errors.Is(err, ErrNoSpace), !corrupt &&
			!noSpace && err != nil:
			t.Errorf("a write that takes space: %v", err)
		}
		if err := a.CheckWrite(false); corrupt != errors.Is(err, ErrCorrupt) || !corrupt && err != nil {
			t.Errorf("a write that takes none: %v", err)
		}
	}
	check(false, false)
	a.set(Alarm{MemberID: 2, Type: AlarmNoSpace}, true)
	check(true, false)
	a.set(Alarm{MemberID: 1, Type: AlarmCorrupt}, true)
	check(true, true)
	if all := a.All(); !slices.Equal(all, []Alarm{{1, AlarmCorrupt}, {2, AlarmNoSpace}}) {
		t.Errorf("%v", all)
	}
	a.set(Alarm{MemberID: 1, Type: AlarmCorrupt}, false)
	check(true, false)
}

// leader implements Node: it commits each change to the table.
type leader struct {
	store     sqlstore.Store
	committed func() // called before a change takes effect; nil: not
	verified  func() // called before it is certain that the node leads; nil: not
}

func (l *leader) VerifyLeader(context.Context, auth.Permit) error {
	if l.verified != nil {
		l.verified()
	}
	return nil
}

func (l *leader) Submit(ctx context.Context, _ auth.Permit, change func(auth.Tx) error) error {
	tx := &transaction{batch: l.store.BeginBatchWrite()}
	if err := errors.Join(change(tx), tx.batch.Commit(ctx)); err != nil {
		return err
	}
	if l.committed != nil {
		l.committed()
	}
	tx.then()
	return nil
}

// transaction implements what alarms need of auth.Tx.
type transaction struct {
	auth.Tx
	batch sqlstore.BatchWrite
	then  func()
}

func (tx *transaction) SetRow(key, value []byte) {
	if value == nil {
		tx.batch.Del(key)
	} else {
		tx.batch.Put(key, value)
	}
}

func (tx *transaction) OnCommit(f func()) { tx.then = f }

func TestChangedAlarmsAreLoadedAgain(t *testing.T) {
	store := newTable(t)
	node := &leader{store: store}
	a := NewAlarms(store, node, slog.New(slog.DiscardHandler))
	first, second := Alarm{MemberID: 1, Type: AlarmCorrupt}, Alarm{MemberID: 2, Type: AlarmNoSpace}
	for _, change := range []struct {
		alarm  Alarm
		raised bool
		want   []Alarm
	}{{first, true, []Alarm{first}}, {second, true, []Alarm{first, second}}, {first, false, []Alarm{second}}} {
		before := a.All()
		node.committed = func() {
			if !slices.Equal(a.All(), before) {
				t.Errorf("%+v takes effect before the commit", change)
			}
		}
		request := a.Raise
		if !change.raised {
			request = a.Disarm
		}
		if got, err := request(t.Context(), auth.System, change.alarm); err != nil || len(got) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		loaded := newAlarms(store)
		if err := loaded.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a.All(), change.want) || !slices.Equal(loaded.All(), change.want) {
			t.Errorf("after %+v: %v, and in the table %v", change, a.All(), loaded.All())
		}
	}
}

func TestLoadKeepsNewerAlarms(t *testing.T) {
	store := newTable(t)
	batch := store.BeginBatchWrite()
	batch.Put(coder.EncodeAlarmKey(7, AlarmCorrupt), coder.Empty())
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored, newer := Alarm{MemberID: 7, Type: AlarmCorrupt}, Alarm{MemberID: 8, Type: AlarmNoSpace}
	a := newAlarms(store)
	load := func() {
		t.Helper()
		if err := a.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	store.reading = func() { a.set(newer, true) }
	load()
	if a.isRaised(stored) || !a.isRaised(newer) {
		t.Errorf("a change while loading was overwritten: %v", a.All())
	}
	store.reading = a.Distrust
	load()
	if a.isRaised(stored) {
		t.Error("a load that Distrust made void took effect")
	}
	store.reading = nil
	load()
	if !a.isRaised(stored) || a.isRaised(newer) {
		t.Errorf("loaded %v", a.All())
	}
	store.reading = func() { // a follower polls, and catches up meanwhile
		store.reading = nil
		load()
		batch := store.BeginBatchWrite()
		batch.Del(coder.EncodeAlarmKey(7, AlarmCorrupt))
		require.NoError(t, batch.Commit(t.Context()))
	}
	load()
	require.True(t, a.isRaised(stored), "a load replaced what one found that began later")
	load()
	require.Empty(t, a.All())
}

// A node that has just begun to lead answers with the alarms that it loaded for that.
func TestAlarmsOfALeaderAreNotThoseOfTheFollowerBefore(t *testing.T) {
	raised := Alarm{MemberID: 1, Type: AlarmNoSpace}
	node := &leader{store: newTable(t)}
	a := NewAlarms(node.store, node, slog.New(slog.DiscardHandler))
	node.verified = func() { a.set(raised, true) }
	all, err := a.List(t.Context(), auth.System)
	require.NoError(t, err)
	require.Equal(t, []Alarm{raised}, all)

	a.set(raised, false)
	disarmed, err := a.Disarm(t.Context(), auth.System, raised)
	require.NoError(t, err)
	require.Equal(t, []Alarm{raised}, disarmed)
}

// unknownDisk is a table whose disk cannot be looked at.
type unknownDisk struct{ *table }

func (unknownDisk) FreeSpace(context.Context) (free, reserve int64, err error) {
	return 0, 8 << 20, errors.New("interrupted system call")
}

func TestUnknownFreeSpaceRefusesNothing(t *testing.T) {
	store := unknownDisk{newTable(t)}
	s := newSpace(t, store, newAlarms(store), 0)
	require.NoError(t, s.Refresh(t.Context()))
	require.NoError(t, s.Check(1))
	require.NoError(t, s.CheckDelete())
}
