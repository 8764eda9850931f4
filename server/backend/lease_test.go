package backend

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/watch"
)

func putLeased(key string, lease int64) *Txn {
	return &Txn{Then: []Op{{Put: &PutRequest{Key: []byte(key), Value: []byte("v"), Lease: lease}}}}
}

func mustGrant(t testing.TB, b *Backend, id, ttl int64) int64 {
	t.Helper()
	l, err := b.LeaseGrant(t.Context(), id, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l.ID
}

func TestRevokingDeletesTheKeysInOneRevision(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	id := mustGrant(t, b, 7, 60)
	for _, k := range []string{"c", "a", "b", "moved", "detached", "gone"} {
		mustTxn(t, b, putLeased(k, id))
	}
	other := mustGrant(t, b, -9, 60)
	mustTxn(t, b, putLeased("moved", other))
	mustTxn(t, b, put("detached", "v"))
	mustTxn(t, b, del("gone"))
	closeBackend(t, b)
	b = open(t, store, nil) // what is attached is in the table

	st, err := b.LeaseTimeToLive(t.Context(), id, true)
	if err != nil || fmt.Sprintf("%s", st.Keys) != "[a b c]" || st.GrantedTTL != 60 {
		t.Fatalf("lease %d: %s %+v, %v", id, st.Keys, st, err)
	}
	before := b.Revision()
	if rev, err := b.LeaseRevoke(t.Context(), id); err != nil || rev != before+1 {
		t.Fatalf("revoking answers revision %d, %v, want %d", rev, err, before+1)
	}
	if b.Revision() != before+1 {
		t.Fatalf("revoking took %d revisions", b.Revision()-before)
	}
	left := mustRange(t, b, &RangeRequest{KeyRange: all()})
	if left.Count != 2 {
		t.Fatalf("left over: %s", describe(left))
	}
	if _, err := b.LeaseRevoke(t.Context(), id); !errors.Is(err, ErrLeaseNotFound) {
		t.Fatalf("revoking twice: %v", err)
	}
	if _, err := b.Txn(t.Context(), putLeased("x", id), true); !errors.Is(err, ErrLeaseNotFound) {
		t.Fatalf("putting with a revoked lease: %v", err)
	}
	if rev, err := b.LeaseRevoke(t.Context(), mustGrant(t, b, 0, 5)); err != nil || rev != before+1 || b.Revision() != before+1 {
		t.Fatalf("revoking an empty lease: revision %d, %v, the store is at %d", rev, err, b.Revision())
	}
	if st, err := b.LeaseTimeToLive(t.Context(), id, true); err != nil || st.TTL != -1 {
		t.Fatalf("a missing lease: %+v, %v", st, err)
	}
}

func TestGrantLimits(t *testing.T) {
	b := open(t, newStore(t), nil)
	for ttl, want := range map[int64]int64{-1: 2, 0: 2, 1: 2, 3: 3, MaxLeaseTTL: MaxLeaseTTL} {
		if l, err := b.LeaseGrant(t.Context(), 0, ttl); err != nil || l.GrantedTTL != want || l.ID <= 0 {
			t.Errorf("granting %d: %+v, %v", ttl, l, err)
		}
	}
	if _, err := b.LeaseGrant(t.Context(), 0, MaxLeaseTTL+1); !errors.Is(err, ErrLeaseTTLTooLarge) {
		t.Errorf("a TTL too large: %v", err)
	}
	mustGrant(t, b, 5, 10)
	if _, err := b.LeaseGrant(t.Context(), 5, 10); !errors.Is(err, ErrLeaseExists) {
		t.Errorf("an id twice: %v", err)
	}
}

func TestALeaseExpiresWithItsKeys(t *testing.T) {
	b := open(t, newStore(t), nil)
	stream := b.Hub().NewStream()
	defer stream.Close()
	stream.Create(watch.CreateRequest{Key: []byte("a"), StartRevision: 3})
	id := mustGrant(t, b, 0, 3) // long enough to put a key
	mustTxn(t, b, putLeased("a", id))
	expectDelete(t, stream, "a")
	if _, err := b.LeaseKeepAlive(t.Context(), id); !errors.Is(err, ErrLeaseNotFound) {
		t.Fatalf("renewing an expired lease: %v", err)
	}
}

func expectDelete(t *testing.T, stream *watch.Stream, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		resp, err := stream.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for the delete event of %s: %v", key, err)
		}
		for _, e := range resp.Events {
			if e.Type == watch.Delete && string(e.Record.Key) == key {
				return
			}
		}
	}
}

func TestRemainingTimeSurvivesARestart(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	id := mustGrant(t, b, 0, 1000)
	age := func(b *Backend, by time.Duration) {
		b.leading.Load().lessor.mu.Lock()
		defer b.leading.Load().lessor.mu.Unlock()
		b.leading.Load().lessor.leases[id].expiry = b.leading.Load().lessor.leases[id].expiry.Add(-by)
	}
	remaining := func(b *Backend) int64 {
		st, err := b.LeaseTimeToLive(t.Context(), id, false)
		if err != nil {
			t.Fatal(err)
		}
		return st.TTL
	}
	age(b, 400*time.Second)
	closeBackend(t, b)
	b = open(t, store, nil)
	if r := remaining(b); r < 590 || r > 600 {
		t.Fatalf("after 400 of 1000 s and a clean restart %d s remain", r)
	}
	if ttl, err := b.LeaseKeepAlive(t.Context(), id); err != nil || ttl != 1000 {
		t.Fatalf("renewing: %d, %v", ttl, err)
	}
	// A renewal is durable at once where the table held less: a crash now must
	// not end the lease early.
	raw, err := store.Get(t.Context(), coder.EncodeLeaseKey(id))
	if err != nil {
		t.Fatal(err)
	}
	if row, err := coder.DecodeLease(coder.EncodeLeaseKey(id), raw); err != nil || row.Remaining != 0 {
		t.Fatalf("after the renewal the table holds %+v, %v", row, err)
	}
}

func TestCheckpointsAreDueAtHalfOfWhatTheTableHolds(t *testing.T) {
	l := &lessor{leases: make(map[int64]*lease), wake: make(chan struct{}, 1)}
	start := time.Now()
	l.add(coder.Lease{ID: 1, TTL: 100}, start)
	if expired, cps, next := l.takeDue(start.Add(49 * time.Second)); len(expired)+len(cps) != 0 || next > time.Second {
		t.Fatalf("at 49 s: %v %v, next in %v", expired, cps, next)
	}
	_, cps, next := l.takeDue(start.Add(50 * time.Second))
	if len(cps) != 1 || cps[0].Remaining != 50 || next != 25*time.Second {
		t.Fatalf("at 50 s: %+v, next in %v", cps, next)
	}
	expired, _, _ := l.takeDue(start.Add(100 * time.Second))
	if len(expired) != 1 {
		t.Fatalf("at 100 s nothing expired")
	}
}

func TestKeysUnderATTLPolicyExpire(t *testing.T) {
	b := open(t, newStore(t), func(c *Config) {
		c.MinLeaseTTL = 1
		c.TTLPolicies = []TTLPolicy{{Prefix: []byte("/events/"), TTL: time.Second}, {Prefix: []byte("/events/keep/"), TTL: time.Hour}}
	})
	stream := b.Hub().NewStream()
	defer stream.Close()
	stream.Create(watch.CreateRequest{Key: []byte("/events/a"), StartRevision: 3})
	mustTxn(t, b, put("/events/a", "v"))
	mustTxn(t, b, put("/events/keep/a", "v"))
	mustTxn(t, b, put("/other", "v"))
	expectDelete(t, stream, "/events/a")
	left := mustRange(t, b, &RangeRequest{KeyRange: all()})
	if left.Count != 2 || left.Records[0].Lease == 0 || left.Records[1].Lease != 0 {
		t.Fatalf("left: %s", describe(left))
	}
}
