package replica

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// sized is a store that has more bytes than those of its rows, and says how much space its disk has.
type sized struct {
	sqlstore.Store
	bytes, free, reserve atomic.Int64
}

func (s *sized) FreeSpace(context.Context) (free, reserve int64, err error) {
	return s.free.Load(), s.reserve.Load(), nil
}

// Measure adds the bytes to those of the rows that commits do not count.
func (s *sized) Measure(ctx context.Context, q sqlstore.MeasureQuery) (sqlstore.Measured, error) {
	m, err := s.Store.Measure(ctx, q)
	if !coder.IsCounted(q.Start) {
		m.Bytes += s.bytes.Load()
	}
	return m, err
}

func (s *sized) Size(context.Context) (total, inUse int64, err error) {
	return s.bytes.Load(), s.bytes.Load(), nil
}

func TestFullDatabaseRefusesPutsUntilDisarmed(t *testing.T) {
	store := &sized{Store: newStore(t)}
	b := open(t, store, func(c *Config) { c.QuotaBytes = 1 << 20 })
	mustTxn(t, b, put("k", "v"))
	store.bytes.Store(1 << 20)
	if err := b.Space.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused := func() {
		t.Helper()
		if _, err := b.Txn(t.Context(), auth.System, put("k", "w"), true); !errors.Is(err, quota.ErrNoSpace) {
			t.Fatalf("a put: %v", err)
		}
		if _, err := lessor(t, b).Grant(t.Context(), auth.System, 0, 10); !errors.Is(err, quota.ErrNoSpace) {
			t.Fatalf("a grant: %v", err)
		}
	}
	refused()
	for b.Alarms.CheckWrite(true) == nil { // raised in the background
		if t.Context().Err() != nil {
			t.Fatal("no alarm")
		}
	}
	mustRange(t, b, &mvcc.RangeRequest{KeyRange: all()})
	mustTxn(t, b, del("k"))

	store.bytes.Store(0)
	if err := b.Space.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused() // the alarm stays
	closeReplica(t, b)
	b = open(t, store, func(c *Config) { c.QuotaBytes = 1 << 20 })
	refused() // and survives a restart
	alarm := quota.Alarm{MemberID: b.MemberID(), Type: quota.AlarmNoSpace}
	if got := b.Alarms.All(); len(got) != 1 || got[0] != alarm {
		t.Fatalf("alarms: %v", got)
	}
	if got, err := b.Alarms.Disarm(t.Context(), auth.System, alarm); err != nil || len(got) != 1 {
		t.Fatalf("disarming: %v, %v", got, err)
	}
	mustTxn(t, b, put("k", "w"))
}

// On a full disk space can be made, and the alarm ends by itself.
func TestFullDiskTakesDeletesAndCompaction(t *testing.T) {
	store := &sized{Store: newStore(t)}
	b := open(t, store, nil)
	mustTxn(t, b, put("k", "v"))
	mustGrant(t, b, 5, 100)
	mustGrant(t, b, 6, 100)
	closeReplica(t, b)
	store.reserve.Store(4)
	store.free.Store(2)
	b = open(t, store, nil) // a disk that is full when the server starts
	alarm := quota.Alarm{MemberID: b.MemberID(), Type: quota.AlarmNoSpace}
	raised := func() {
		t.Helper()
		if got, err := b.Alarms.List(t.Context(), auth.System); err != nil || len(got) != 1 || got[0] != alarm {
			t.Fatalf("alarms: %v, %v", got, err)
		}
		if got := b.Alarms.All(); len(got) != 1 || got[0] != alarm {
			t.Fatalf("alarms: %v", got)
		}
		if _, err := b.Txn(t.Context(), auth.System, put("k", "w"), true); !errors.Is(err, quota.ErrNoSpace) {
			t.Fatalf("a put: %v", err)
		}
		if _, err := lessor(t, b).Grant(t.Context(), auth.System, 0, 10); !errors.Is(err, quota.ErrNoSpace) {
			t.Fatalf("a grant: %v", err)
		}
	}
	raised()
	if got := b.Meta().Alarms; len(got) != 0 {
		t.Errorf("a snapshot has the alarms %v", got)
	}
	mustTxn(t, b, del("k"))
	if _, err := lessor(t, b).Revoke(t.Context(), auth.System, 5); err != nil {
		t.Errorf("a revocation: %v", err)
	}
	refresh := func(free int64) {
		t.Helper()
		store.free.Store(free)
		if err := b.Space.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	refresh(1)
	if _, err := b.Txn(t.Context(), auth.System, del("k"), true); !errors.Is(err, quota.ErrNoSpace) {
		t.Errorf("a delete that takes the space of a compaction: %v", err)
	}
	if _, err := lessor(t, b).Revoke(t.Context(), auth.System, 6); !errors.Is(err, quota.ErrNoSpace) {
		t.Errorf("a revocation that takes the space of a compaction: %v", err)
	}
	if _, err := b.Compact(t.Context(), auth.System, b.Revision(), true); err != nil {
		t.Errorf("a compaction: %v", err)
	}
	if got, err := b.Alarms.Disarm(t.Context(), auth.System, alarm); err != nil || len(got) != 0 {
		t.Errorf("disarming: %v, %v", got, err)
	}
	raised() // the disk is still full

	store.free.Store(5)
	if err := b.Space.Defragment(t.Context(), auth.System); err != nil {
		t.Fatal(err)
	}
	if got := b.Alarms.All(); len(got) != 0 {
		t.Errorf("alarms: %v", got)
	}
	mustTxn(t, b, put("k", "w"))
}

// A write that was refused when this node led last does not raise the alarm when it leads again: there may be space
// now.
func TestAlarmOfAnEarlierLeadershipIsNotRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openFollower(t, &sized{Store: newStore(t)}, exclusive(t, func(c *Config) { c.QuotaBytes = 1 << 20 }))
		b.Space.Grow(1 << 20)
		if err := b.Space.Check(1); !errors.Is(err, quota.ErrNoSpace) {
			t.Fatalf("a write above the quota: %v", err)
		}
		b.Space.Grow(-1 << 20)
		stop, ended := new(atLeader).lead(t, b)
		synctest.Wait() // a request of the alarm would have been taken
		for range 3 {
			mustTxn(t, b, put("k", "v"))
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if got := b.Alarms.All(); len(got) != 0 {
			t.Errorf("alarms: %v", got)
		}
	})
}
