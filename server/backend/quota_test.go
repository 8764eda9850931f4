package backend

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// sized is a store that says how large it is.
type sized struct {
	sqlstore.Store
	bytes atomic.Int64
}

func (s *sized) Size(context.Context) (total, inUse int64, err error) {
	return s.bytes.Load(), s.bytes.Load(), nil
}

func TestAFullDatabaseRefusesPutsUntilItIsDisarmed(t *testing.T) {
	store := &sized{Store: newStore(t)}
	b := open(t, store, func(c *Config) { c.QuotaBytes = 1 << 20 })
	mustTxn(t, b, put("k", "v"))
	store.bytes.Store(1 << 20)
	if err := b.size.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused := func() {
		t.Helper()
		if _, err := b.Txn(t.Context(), put("k", "w"), true); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("a put: %v", err)
		}
		if _, err := b.LeaseGrant(t.Context(), 0, 10); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("a grant: %v", err)
		}
	}
	refused()
	for !b.alarms.has(AlarmNoSpace) { // raised in the background
		if t.Context().Err() != nil {
			t.Fatal("no alarm")
		}
	}
	mustRange(t, b, &RangeRequest{KeyRange: all()})
	mustTxn(t, b, del("k"))

	store.bytes.Store(0)
	if err := b.size.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused() // the alarm stays
	closeBackend(t, b)
	b = open(t, store, func(c *Config) { c.QuotaBytes = 1 << 20 })
	refused() // and survives a restart
	alarm := Alarm{MemberID: b.MemberID(), Type: AlarmNoSpace}
	if got := b.Alarms(); len(got) != 1 || got[0] != alarm {
		t.Fatalf("alarms: %v", got)
	}
	if got, err := b.DisarmAlarm(t.Context(), alarm); err != nil || len(got) != 1 {
		t.Fatalf("disarming: %v, %v", got, err)
	}
	mustTxn(t, b, put("k", "w"))
}

func TestTheQuotaCountsWhatWasWrittenSinceItWasMeasured(t *testing.T) {
	b := open(t, &sized{Store: newStore(t)}, func(c *Config) { c.QuotaBytes = 100_000 })
	value := string(make([]byte, 10_000))
	for i := 0; ; i++ {
		if _, err := b.Txn(t.Context(), put("k", value), true); errors.Is(err, ErrNoSpace) {
			return
		} else if err != nil || i > 10 {
			t.Fatalf("put %d: %v", i, err)
		}
	}
}

// TestWriteThatWouldExceedTheQuotaIsRefused: the costs are those that etcd counts.
func TestWriteThatWouldExceedTheQuotaIsRefused(t *testing.T) {
	value := string(make([]byte, 300))
	twice := &Txn{Then: append(put("a", value).Then, put("b", value).Then...)}
	grant := func(b *Backend) error { _, err := b.LeaseGrant(t.Context(), 0, 10); return err }
	txn := func(x *Txn) func(*Backend) error {
		return func(b *Backend) error { _, err := b.Txn(t.Context(), x, true); return err }
	}
	for name, c := range map[string]struct {
		write func(*Backend) error
		cost  int64
	}{
		"put":                  {txn(put("k", value)), 256 + 1 + 300},
		"transaction":          {txn(twice), 2 * (256 + 1 + 300)},
		"the branch not taken": {txn(&Txn{Then: put("k", "").Then, Else: twice.Then}), 2 * (256 + 1 + 300)},
		"nested transaction":   {txn(&Txn{Then: append([]Op{{Txn: twice}}, put("k", "").Then...)}), 2*(256+1+300) + 256 + 1},
		"grant":                {grant, 64},
		"delete":               {txn(del("k")), 0},
	} {
		for _, more := range []int64{0, 1} { // room for the write but for one byte, and for it
			store := &sized{Store: newStore(t)}
			b := open(t, store, func(cfg *Config) { cfg.QuotaBytes = 1 << 20 })
			store.bytes.Store(1<<20 - c.cost - more)
			if err := b.size.refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := c.write(b)
			if refused := errors.Is(err, ErrNoSpace); refused != (more == 0 && c.cost > 0) || err != nil && !refused {
				t.Errorf("%s of %d bytes with %d left: %v", name, c.cost, c.cost+more, err)
			}
		}
	}
}

func TestACorruptClusterRefusesWritesOnly(t *testing.T) {
	b := open(t, newStore(t), nil)
	if _, err := b.RaiseAlarm(t.Context(), Alarm{MemberID: 1, Type: AlarmCorrupt}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Range(t.Context(), &RangeRequest{KeyRange: all()}, true); err != nil {
		t.Errorf("a read: %v", err)
	}
	if _, err := b.Txn(t.Context(), put("k", "v"), true); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a write: %v", err)
	}
	if _, err := b.Compact(t.Context(), 1, false); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a compaction: %v", err)
	}
}

func TestAlarmsAndLeases(t *testing.T) {
	b := open(t, newStore(t), nil)
	if _, err := b.LeaseGrant(t.Context(), 5, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := b.RaiseAlarm(t.Context(), Alarm{MemberID: 1, Type: AlarmNoSpace}); err != nil {
		t.Fatal(err)
	}
	// etcd looks at the alarms first.
	if _, err := b.LeaseGrant(t.Context(), 6, MaxLeaseTTL+1); !errors.Is(err, ErrNoSpace) {
		t.Errorf("a grant without space: %v", err)
	}
	if _, err := b.RaiseAlarm(t.Context(), Alarm{MemberID: 1, Type: AlarmCorrupt}); err != nil {
		t.Fatal(err)
	}
	if st, err := b.LeaseTimeToLive(t.Context(), 5, true); err != nil || st.GrantedTTL != 100 {
		t.Errorf("time to live in a corrupt cluster: %+v, %v", st, err)
	}
	if ids, err := b.Leases(t.Context()); err != nil || len(ids) != 1 {
		t.Errorf("leases in a corrupt cluster: %v, %v", ids, err)
	}
}
