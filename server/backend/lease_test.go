package backend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
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
	remaining := func(b *Backend) int64 {
		st, err := b.LeaseTimeToLive(t.Context(), id, false)
		if err != nil {
			t.Fatal(err)
		}
		return st.TTL
	}
	age(b, id, 400*time.Second)
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
	if row := leaseRow(t, store, id); row.Remaining != 0 {
		t.Fatalf("after the renewal the table holds %+v", row)
	}
}

// age lets a lease's time pass.
func age(b *Backend, id int64, by time.Duration) {
	l := b.leading.Load().lessor
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[id].expiry = l.leases[id].expiry.Add(-by)
}

// leaseRow returns what the table holds of a lease.
func leaseRow(t *testing.T, store sqlstore.Store, id int64) coder.Lease {
	t.Helper()
	raw, err := store.Get(t.Context(), coder.EncodeLeaseKey(id))
	if err != nil {
		t.Fatal(err)
	}
	row, err := coder.DecodeLease(coder.EncodeLeaseKey(id), raw)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// TestHandoverRoundsRemainingTimeUp: no change of leader makes a lease shorter.
func TestHandoverRoundsRemainingTimeUp(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	id := mustGrant(t, b, 0, 1000)
	for range 3 {
		age(b, id, 10*time.Second+time.Millisecond)
		l := b.leading.Load().lessor
		l.mu.Lock()
		end := l.leases[id].expiry
		l.mu.Unlock()
		before := time.Until(end)
		closeBackend(t, b)
		row := leaseRow(t, store, id)
		if got := time.Duration(row.Remaining) * time.Second; got < time.Until(end) || got > before+time.Second {
			t.Fatalf("%v before the end of a lease the table holds %d s", before, row.Remaining)
		}
		b = open(t, store, nil)
	}
}

// TestLeaseClocksStartWhenTheLeaderServes: not when it takes the chain row, after
// which its predecessor may acknowledge renewals for a while, and it may have much to
// catch up with.
func TestLeaseClocksStartWhenTheLeaderServes(t *testing.T) {
	p := newPair(t, newStore(t))
	p.lead(0)
	id := mustGrant(t, p.nodes[0], 0, 1000)
	next := p.nodes[1]
	l, err := next.takeOver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if l.lessor.count() != 0 {
		t.Error("the clocks run before the leader serves")
	}
	ctx, cancel := context.WithCancel(t.Context())
	serves, ended := make(chan time.Time), make(chan error)
	taken := time.Now()
	go func() { ended <- l.run(ctx, func(int64) { serves <- time.Now() }) }()
	at := <-serves
	l.lessor.mu.Lock()
	end := l.lessor.leases[id].expiry
	l.lessor.mu.Unlock()
	if first, last := taken.Add(1000*time.Second+takeoverGrace), at.Add(1000*time.Second+takeoverGrace); end.Before(first) || end.After(last) {
		t.Errorf("the lease ends %v after the leader began to serve", end.Sub(at))
	}
	if err := <-p.ended[0]; !errors.Is(err, ErrNotLeader) { // its watch of the chain row finds out
		t.Errorf("the first leader ended with %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestRenewalsOfADeposedLeaderCount: what the old leader acknowledges without a
// commit, because it cannot know of its successor yet, the successor keeps.
func TestRenewalsOfADeposedLeaderCount(t *testing.T) {
	p := newPair(t, newStore(t))
	p.lead(0)
	old, next := p.nodes[0], p.nodes[1]
	id := mustGrant(t, old, 0, 1000)
	promised := make(chan time.Time)
	go func() {
		var last time.Time
		for {
			asked := time.Now()
			if _, err := old.LeaseKeepAlive(context.Background(), id); err != nil {
				promised <- last.Add(1000 * time.Second)
				return
			}
			last = asked
		}
	}()
	p.lead(1)
	l := next.leading.Load().lessor
	l.mu.Lock()
	end := l.leases[id].expiry.Add(-takeoverGrace)
	l.mu.Unlock()
	if p := <-promised; end.Before(p) {
		t.Errorf("the next leader ends the lease %v before what the last renewal was promised", p.Sub(end))
	}
}

// TestCheckpointsOfManyLeasesAreSeveralCommits: so that no write waits for all of them.
func TestCheckpointsOfManyLeasesAreSeveralCommits(t *testing.T) {
	const n = 2*checkpointBatch + 1
	store := newStore(t)
	b := open(t, store, nil)
	for i := range int64(n) {
		mustGrant(t, b, i+1, 1000)
		age(b, i+1, 400*time.Second)
	}
	before := b.Status().Sequence
	if err := b.leading.Load().lessor.handOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if commits := b.Status().Sequence - before; commits < 3 {
		t.Errorf("%d leases were checkpointed in %d commits", n, commits)
	}
	for i := range int64(n) {
		if row := leaseRow(t, store, i+1); row.Remaining == 0 || row.Remaining > 600 {
			t.Fatalf("lease %d was not checkpointed: %+v", i+1, row)
		}
	}

	l := &lessor{leases: make(map[int64]*lease), wake: make(chan struct{}, 1)}
	start := time.Now()
	for i := range int64(n) {
		l.add(coder.Lease{ID: i + 1, TTL: 100}, start)
	}
	for _, want := range []int{checkpointBatch, checkpointBatch, 1} {
		_, due, next := l.takeDue(start.Add(50 * time.Second))
		if len(due) != want || (next > 0) != (want == 1) {
			t.Fatalf("%d due, next in %v, want %d", len(due), next, want)
		}
	}
}

func TestRemainingTimeIsWholeSeconds(t *testing.T) {
	now := time.Now()
	for left, want := range map[time.Duration]int64{
		math.MaxInt64: MaxLeaseTTL, MaxLeaseTTL * time.Second: MaxLeaseTTL, (MaxLeaseTTL-1)*time.Second + 1: MaxLeaseTTL,
		time.Second + 1: 2, time.Second: 1, time.Second - 1: 1, 0: 1, -time.Minute: 1,
	} {
		le := &lease{ttl: MaxLeaseTTL, expiry: now.Add(left)}
		if got := le.remaining(now); got != want {
			t.Errorf("%v before its end a lease has %d s left, want %d s", left, got, want)
		}
	}
}

// TestRenewalDuringHandoverIsNotLost: while the last commits of a leader take long,
// a keepalive is either turned away or known to the next leader.
func TestRenewalDuringHandoverIsNotLost(t *testing.T) {
	store := &late{Store: newStore(t)}
	b := open(t, store, nil)
	id := mustGrant(t, b, 0, 1000)
	release := store.holdCommits()
	defer release()
	written := make(chan error)
	go func() {
		_, err := b.Txn(t.Context(), put("k", "v"), true)
		written <- err
	}()
	age(b, id, 400*time.Second)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closeBackend(t, b)
	}()
	<-time.After(handoverTimeout / 10) // by now the handover waits for the commit
	_, err := b.LeaseKeepAlive(t.Context(), id)
	acknowledged := err == nil
	if err != nil && !errors.Is(err, ErrNotLeader) {
		t.Errorf("a keepalive during the handover: %v", err)
	}
	release()
	if err := <-written; err != nil {
		t.Error(err)
	}
	<-closed
	if _, err := b.LeaseKeepAlive(t.Context(), id); err == nil {
		t.Error("a keepalive after the handover was acknowledged")
	}
	if row := leaseRow(t, store, id); acknowledged && row.Remaining != 0 && row.Remaining < 990 {
		t.Errorf("a renewal to 1000 s was acknowledged, the table holds %d s", row.Remaining)
	}
}

// TestCheckpointKnowsLaterRenewals: a renewal between the moment that a checkpoint is
// due and its commit is not undone.
func TestCheckpointKnowsLaterRenewals(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	id := mustGrant(t, b, 0, 1000)
	l := b.leading.Load().lessor
	_, due, _ := l.takeDue(time.Now().Add(500 * time.Second))
	if len(due) != 1 {
		t.Fatalf("due for a checkpoint: %v", due)
	}
	if _, err := b.LeaseKeepAlive(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := l.checkpoint(t.Context(), due); err != nil {
		t.Fatal(err)
	}
	if row := leaseRow(t, store, id); row.Remaining != 0 && row.Remaining < 990 {
		t.Errorf("renewed to 1000 s, the table holds %d s", row.Remaining)
	}
}

// TestRenewalWaitsForACommitAfterACheckpoint: from the evaluation of a checkpoint on,
// however long its commit takes, a renewal is acknowledged only once the table holds
// the full time again.
func TestRenewalWaitsForACommitAfterACheckpoint(t *testing.T) {
	store := &late{Store: newStore(t)}
	b := open(t, store, nil)
	id := mustGrant(t, b, 0, 1000)
	age(b, id, 400*time.Second)
	release := store.holdCommits()
	defer release()
	done := make(chan error)
	go func() { done <- b.leading.Load().lessor.checkpoint(t.Context(), []int64{id}) }()
	eventually(t, "the checkpoint to be in the table", func() bool { return leaseRow(t, store, id).Remaining > 0 })
	renewed := make(chan error)
	go func() {
		_, err := b.LeaseKeepAlive(t.Context(), id)
		if row := leaseRow(t, store, id); err == nil && row.Remaining != 0 {
			err = fmt.Errorf("acknowledged, but the table holds %d s", row.Remaining)
		}
		renewed <- err
	}()
	select {
	case err := <-renewed:
		t.Fatalf("the renewal ended before the checkpoint: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := <-renewed; err != nil {
		t.Fatal(err)
	}
}

// TestTableHoldsAtLeastWhatRenewalsRelyOn: with every order of a checkpoint and a
// renewal in one step or two, committed or not.
func TestTableHoldsAtLeastWhatRenewalsRelyOn(t *testing.T) {
	l := idle(t)
	store := &narrow{Store: l.store, bytes: 1 << 20}
	l.store = store
	runTogether(t, l, &grantCommand{l: l, row: coder.Lease{ID: 7, TTL: 1000, Policy: true}})
	checkpoint := func() command { return &checkpointCommand{l: l, ids: []int64{7}} }
	renewal := func() command { return &checkpointCommand{l: l, ids: []int64{7}, renewed: true} }
	check := func(what string, want int64) {
		t.Helper()
		row := leaseRow(t, store, 7)
		if row.TTL != 1000 || !row.Policy || (row.Remaining == 0) != (want == 1000) {
			t.Errorf("%s: the table holds %+v, want %d s", what, row, want)
		}
		if p := l.lessor.leases[7].persisted; p > want+1 || row.Remaining != 0 && p > row.Remaining {
			t.Errorf("%s: %d s counted as persisted, the table holds %+v", what, p, row)
		}
	}
	age(l.Backend, 7, 400*time.Second)
	runTogether(t, l, renewal(), checkpoint())
	check("renewal, checkpoint", 1000)
	runTogether(t, l, checkpoint())
	check("checkpoint", 600)
	runTogether(t, l, checkpoint(), renewal())
	check("checkpoint, renewal", 1000)
	store.bytes = 1
	runTogether(t, l, checkpoint())
	store.bytes = 1 << 20
	check("a checkpoint that failed", 1000)
	if _, persist, _, _ := l.lessor.renew(7); !persist {
		t.Error("after a checkpoint that failed a renewal relies on the table")
	}
	runTogether(t, l, revokeOf(t, l, 7), &grantCommand{l: l, row: coder.Lease{ID: 7, TTL: 20}}, checkpoint(), renewal())
	if row := leaseRow(t, store, 7); row != (coder.Lease{ID: 7, TTL: 20}) {
		t.Errorf("a lease that was revoked and granted again in one step: the table holds %+v", row)
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
	if len(cps) != 1 || l.leases[1].persisted != 50 || next != 25*time.Second {
		t.Fatalf("at 50 s: %v, %d s persisted, next in %v", cps, l.leases[1].persisted, next)
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
