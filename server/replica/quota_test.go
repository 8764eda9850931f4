package replica

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// sized is a store that says how large it is, and how much space its disk has.
type sized struct {
	sqlstore.Store
	bytes, free, reserve atomic.Int64
	full                 atomic.Bool // commits are refused
}

func (s *sized) BeginBatchWrite() sqlstore.BatchWrite {
	return sizedBatch{s.Store.BeginBatchWrite(), s}
}

type sizedBatch struct {
	sqlstore.BatchWrite
	s *sized
}

func (b sizedBatch) Commit(ctx context.Context) error {
	if b.s.full.Load() {
		return sqlstore.ErrFull
	}
	return b.BatchWrite.Commit(ctx)
}

func (s *sized) FreeSpace(context.Context) (free, reserve int64, err error) {
	return s.free.Load(), s.reserve.Load(), nil
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
	if _, err := lessor(t, b).Grant(t.Context(), auth.System, 5, 100); err != nil {
		t.Fatal(err)
	}
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
	if _, err := lessor(t, b).Revoke(t.Context(), auth.System, 5); err != nil {
		t.Errorf("a revocation: %v", err)
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

// The servers that do not say how much space their disk has refuse a commit.
func TestRefusedCommitRaisesAlarm(t *testing.T) {
	store := &sized{Store: newStore(t)}
	b := open(t, store, nil)
	store.full.Store(true)
	for _, want := range []error{sqlstore.ErrFull, quota.ErrNoSpace} {
		if _, err := b.Txn(t.Context(), auth.System, put("k", "v"), true); !errors.Is(err, want) {
			t.Fatalf("a put: %v, want %v", err, want)
		}
	}
	if got := b.Alarms.All(); len(got) != 1 || got[0] != (quota.Alarm{MemberID: b.MemberID(), Type: quota.AlarmNoSpace}) {
		t.Errorf("alarms: %v", got)
	}
	metric := func(value string) {
		t.Helper()
		want := "# HELP sqlbrain_no_space 1 while this node knows a NOSPACE alarm: the quota or the disk is full.\n" +
			"# TYPE sqlbrain_no_space gauge\nsqlbrain_no_space " + value + "\n"
		if err := testutil.GatherAndCompare(b.metrics.own, strings.NewReader(want), "sqlbrain_no_space"); err != nil {
			t.Error(err)
		}
	}
	metric("1")
	store.full.Store(false)
	if err := b.Space.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.Alarms.All(); len(got) != 0 {
		t.Errorf("alarms: %v", got)
	}
	metric("0")
	mustTxn(t, b, put("k", "v"))
}

func TestQuotaCountsBytesSinceRefresh(t *testing.T) {
	b := open(t, &sized{Store: newStore(t)}, func(c *Config) { c.QuotaBytes = 100_000 })
	value := string(make([]byte, 10_000))
	for i := 0; ; i++ {
		if _, err := b.Txn(t.Context(), auth.System, put("k", value), true); errors.Is(err, quota.ErrNoSpace) {
			return
		} else if err != nil || i > 10 {
			t.Fatalf("put %d: %v", i, err)
		}
	}
}

// TestQuotaCostsEqualEtcd: the costs are those that etcd counts.
func TestQuotaCostsEqualEtcd(t *testing.T) {
	value := string(make([]byte, 300))
	twice := &mvcc.Txn{Then: append(put("a", value).Then, put("b", value).Then...)}
	grant := func(b *Replica) error { _, err := lessor(t, b).Grant(t.Context(), auth.System, 0, 10); return err }
	txn := func(x *mvcc.Txn) func(*Replica) error {
		return func(b *Replica) error { _, err := b.Txn(t.Context(), auth.System, x, true); return err }
	}
	for name, c := range map[string]struct {
		write func(*Replica) error
		cost  int64
	}{
		"put":                  {txn(put("k", value)), 256 + 1 + 300},
		"transaction":          {txn(twice), 2 * (256 + 1 + 300)},
		"the branch not taken": {txn(&mvcc.Txn{Then: put("k", "").Then, Else: twice.Then}), 2 * (256 + 1 + 300)},
		"nested transaction":   {txn(&mvcc.Txn{Then: append([]mvcc.Op{{Txn: twice}}, put("k", "").Then...)}), 2*(256+1+300) + 256 + 1},
		"grant":                {grant, 64},
		"delete":               {txn(del("k")), 0},
	} {
		for _, more := range []int64{0, 1} { // room for the write but for one byte, and for it
			store := &sized{Store: newStore(t)}
			b := open(t, store, func(cfg *Config) { cfg.QuotaBytes = 1 << 20 })
			store.bytes.Store(1<<20 - c.cost - more)
			if err := b.Space.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := c.write(b)
			if refused := errors.Is(err, quota.ErrNoSpace); refused != (more == 0 && c.cost > 0) || err != nil && !refused {
				t.Errorf("%s of %d bytes with %d left: %v", name, c.cost, c.cost+more, err)
			}
		}
	}
}

func TestCorruptAlarmRefusesOnlyWrites(t *testing.T) {
	b := open(t, newStore(t), nil)
	if _, err := b.Alarms.Raise(t.Context(), auth.System, quota.Alarm{MemberID: 1, Type: quota.AlarmCorrupt}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all()}, true); err != nil {
		t.Errorf("a read: %v", err)
	}
	if _, err := b.Txn(t.Context(), auth.System, put("k", "v"), true); !errors.Is(err, quota.ErrCorrupt) {
		t.Errorf("a write: %v", err)
	}
	if _, err := b.Compact(t.Context(), auth.System, 1, false); !errors.Is(err, quota.ErrCorrupt) {
		t.Errorf("a compaction: %v", err)
	}
}

func TestAlarmsRefuseGrantsAndNoLeaseReads(t *testing.T) {
	b := open(t, newStore(t), nil)
	if _, err := lessor(t, b).Grant(t.Context(), auth.System, 5, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Alarms.Raise(t.Context(), auth.System, quota.Alarm{MemberID: 1, Type: quota.AlarmNoSpace}); err != nil {
		t.Fatal(err)
	}
	// etcd looks at the alarms first.
	if _, err := lessor(t, b).Grant(t.Context(), auth.System, 6, lease.MaxTTL+1); !errors.Is(err, quota.ErrNoSpace) {
		t.Errorf("a grant without space: %v", err)
	}
	if _, err := b.Alarms.Raise(t.Context(), auth.System, quota.Alarm{MemberID: 1, Type: quota.AlarmCorrupt}); err != nil {
		t.Fatal(err)
	}
	if st, err := lessor(t, b).TimeToLive(t.Context(), auth.System, 5, true); err != nil || st.GrantedTTL != 100 {
		t.Errorf("time to live in a corrupt cluster: %+v, %v", st, err)
	}
	if ids, err := lessor(t, b).IDs(t.Context(), auth.System); err != nil || len(ids) != 1 {
		t.Errorf("leases in a corrupt cluster: %v, %v", ids, err)
	}
}

// A write that was refused when this node led last does not raise the alarm when it leads again: there may be space
// now.
func TestAlarmOfAnEarlierLeadershipIsNotRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := OpenFollower(t.Context(), &sized{Store: newStore(t)},
			exclusive(t, func(c *Config) { c.QuotaBytes = 1 << 20 }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeReplica(t, b) })
		b.Space.Grow(1 << 20)
		if err := b.Space.Check(1); !errors.Is(err, quota.ErrNoSpace) {
			t.Fatalf("a write above the quota: %v", err)
		}
		b.Space.Grow(-1 << 20)
		ctx, cancel := context.WithCancel(t.Context())
		leading, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- b.Lead(ctx, func(int64) { close(leading) }) }()
		<-leading
		synctest.Wait() // a request of the alarm would have been taken
		for range 3 {
			mustTxn(t, b, put("k", "v"))
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if got := b.Alarms.All(); len(got) != 0 {
			t.Errorf("alarms: %v", got)
		}
	})
}
