package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
	"github.com/sqlbrain/sqlbrain/watch"
)

// atLeader is the Leadership of members that all know who leads.
type atLeader struct{ leader atomic.Pointer[Replica] }

func (a *atLeader) Position(ctx context.Context) (Update, error) {
	b := a.leader.Load()
	if b == nil {
		return Update{}, mvcc.ErrNotLeader
	}
	return b.Position(ctx)
}

func (a *atLeader) Leader() uint64 {
	if b := a.leader.Load(); b != nil {
		return b.MemberID()
	}
	return 0
}

func (a *atLeader) join(t *testing.T, store sqlstore.Store, name string, change ...func(*Config)) *Replica {
	t.Helper()
	cfg := testConfig(t, append([]func(*Config){func(c *Config) { c.Name, c.Leadership = name, a }}, change...)...)
	return openFollower(t, store, cfg)
}

// lead makes b lead until stop is called, or the test ends. ended gets what Lead returns.
func (a *atLeader) lead(t *testing.T, b *Replica) (stop context.CancelFunc, ended chan error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	leading, ended := make(chan struct{}), make(chan error, 1)
	var leads sync.WaitGroup
	leads.Go(func() {
		ended <- b.Lead(ctx, func(int64) {
			a.leader.Store(b)
			close(leading)
		})
	})
	t.Cleanup(func() {
		stop()
		leads.Wait()
	})
	select {
	case <-leading:
	case err := <-ended:
		t.Fatal(err)
	}
	return stop, ended
}

// pair is two replicas on one store, of which any may lead.
type pair struct {
	atLeader
	t     *testing.T
	nodes [2]*Replica
	stop  [2]context.CancelFunc
	ended [2]chan error
}

func newPair(t *testing.T, store sqlstore.Store, change ...func(*Config)) *pair {
	t.Helper()
	p := &pair{t: t}
	for i := range p.nodes {
		p.nodes[i] = p.join(t, store, fmt.Sprint("n", i), change...)
	}
	return p
}

// newLedPair returns a pair of which the first leads.
func newLedPair(t *testing.T, store sqlstore.Store, change ...func(*Config)) (p *pair, leader, follower *Replica) {
	t.Helper()
	p = newPair(t, store, change...)
	p.lead(0)
	return p, p.nodes[0], p.nodes[1]
}

// lead makes node i lead until resign or the end of the test.
func (p *pair) lead(i int) {
	p.t.Helper()
	p.stop[i], p.ended[i] = p.atLeader.lead(p.t, p.nodes[i])
}

// resign ends node i's leadership and returns what Lead did.
func (p *pair) resign(i int) error {
	p.stop[i]()
	return <-p.ended[i]
}

func (p *pair) mustResign(i int) {
	p.t.Helper()
	if err := p.resign(i); err != nil {
		p.t.Fatal(err)
	}
}

// catchUp brings b to what the table holds, all of which the leader shows.
func catchUp(t *testing.T, b *Replica) error {
	t.Helper()
	rev, err := b.RefreshState(t.Context())
	if err != nil {
		return err
	}
	b.limit.raise(rev)
	return b.CatchUp(t.Context())
}

func mustCatchUp(t *testing.T, b *Replica) {
	t.Helper()
	if err := catchUp(t, b); err != nil {
		t.Fatal(err)
	}
}

func TestFollowerReadsAcknowledgedWrites(t *testing.T) {
	p := newPair(t, newStore(t))
	p.lead(0)
	mustTxn(t, p.nodes[0], put("k", "1"))
	follower := p.nodes[1]
	if _, err := follower.Txn(t.Context(), auth.System, put("k", "2"), true); !errors.Is(err, mvcc.ErrNotLeader) {
		t.Fatalf("a follower's write: %v", err)
	}
	if res, err := follower.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all()},
		false); err != nil ||
		len(res.Records) != 0 {
		t.Fatalf("a serializable read of a follower that was told nothing: %+v, %v", res, err)
	}
	// The linearizable read waits until the follower knows as much as the leader.
	read := make(chan *mvcc.RangeResult)
	go func() {
		res, err := follower.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all()}, true)
		if err != nil {
			t.Error(err)
		}
		read <- res
	}()
	select {
	case res := <-read:
		t.Fatalf("it was answered too early: %+v", res)
	case <-time.After(20 * time.Millisecond):
	}
	mustCatchUp(t, follower)
	if res := <-read; len(res.Records) != 1 || string(res.Records[0].Value) != "1" || res.Revision != 2 {
		t.Fatalf("read %+v", res)
	}
}

func TestApplyKeepsOrderAndReportsGaps(t *testing.T) {
	_, leader, follower := newLedPair(t, newStore(t))
	stream := leader.Hub.NewStream()
	defer stream.Close()
	stream.Create(watch.Permitted, watch.CreateRequest{Key: []byte{0}, End: []byte{0}})
	watcher := follower.Hub.NewStream()
	defer watcher.Close()
	watcher.Create(watch.Permitted, watch.CreateRequest{Key: []byte("k"), PrevKV: true, StartRevision: 2})
	for i := range 5 {
		mustTxn(t, leader, put("k", fmt.Sprint(i)))
	}
	var events []*watch.Event
	for len(events) < 5 {
		r, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Events {
			events = append(events, &watch.Event{Type: e.Type, Record: e.Record, PrevRevision: e.PrevRevision})
		}
	}
	if err := follower.Apply(Update{Term: 1, Revision: 3, Events: events[1:2]}); !errors.Is(err, errGap) {
		t.Fatalf("a gap: %v", err)
	}
	for _, u := range []Update{
		{Term: 1, Revision: 3, Events: events[:2]},
		{Term: 1, Revision: 3}, // nothing new
		{Term: 1, Revision: 5, Events: events[1:4]},
	} {
		if err := follower.Apply(u); err != nil {
			t.Fatal(err)
		}
	}
	if err := follower.Apply(Update{Term: 1, Revision: 6}); !errors.Is(err, errGap) {
		t.Fatalf("a revision without its events: %v", err)
	}
	mustCatchUp(t, follower)
	if rev := follower.Revision(); rev != 6 {
		t.Fatalf("the follower is at %d", rev)
	}
	expectContiguous(t, watcher, 2, 6)
}

func TestDeposedLeaderFollowsAndLeadsAgain(t *testing.T) {
	p := newPair(t, newStore(t))
	old, young := p.nodes[0], p.nodes[1]
	p.lead(0)
	watcher := old.Hub.NewStream()
	defer watcher.Close()
	watcher.Create(watch.Permitted, watch.CreateRequest{Key: []byte("k"), PrevKV: true, StartRevision: 2})
	mustTxn(t, old, put("k", "1"))
	id := mustGrant(t, old, 0, 100)
	p.lead(1)
	mustTxn(t, young, put("k", "2"))
	if _, err := old.Txn(t.Context(), auth.System, put("k", "lost"), true); !errors.Is(err, mvcc.ErrNotLeader) {
		t.Fatalf("a deposed leader's write: %v", err)
	}
	if err := <-p.ended[0]; !errors.Is(err, mvcc.ErrNotLeader) || !errors.Is(err, fence.ErrDeposed) {
		t.Fatalf("its leadership ended with %v", err)
	}
	mustCatchUp(t, old)
	mustTxn(t, young, put("k", "3"))
	p.mustResign(1)
	p.lead(0)
	if res := mustTxn(t, old, put("k", "4")); res.Revision != 5 {
		t.Fatalf("revision %d, want 5", res.Revision)
	}
	if st, err := lessor(t, old).TimeToLive(t.Context(), auth.System, id, false); err != nil || st.GrantedTTL != 100 {
		t.Fatalf("the lease is %+v, %v", st, err)
	}
	expectContiguous(t, watcher, 2, 5)
}

func TestFollowerChecksMarkAfterReading(t *testing.T) {
	_, leader, follower := newLedPair(t, newStore(t))
	for i := range 5 {
		mustTxn(t, leader, put("k", fmt.Sprint(i)))
	}
	mustCatchUp(t, follower)
	mustCompact(t, leader, 5, true)
	// The follower has not heard of the compaction.
	if _, err := follower.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all(), Revision: 3},
		false); !errors.Is(err, mvcc.ErrCompacted) {
		t.Fatalf("a read below the compact revision: %v", err)
	}
	if _, _, err := follower.history.Changes(t.Context(), []byte{0}, []byte{0}, 3, 6, 1<<20); !errors.As(err,
		new(*watch.CompactedError)) {
		t.Fatalf("history below the compact revision: %v", err)
	}
}

func TestFollowerJumpsOverCompactedHistory(t *testing.T) {
	_, leader, follower := newLedPair(t, newStore(t))
	watcher := follower.Hub.NewStream()
	defer watcher.Close()
	watcher.Create(watch.Permitted, watch.CreateRequest{Key: []byte("k")})
	if _, err := follower.Reader.Range(t.Context(), auth.System,
		&mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k")}},
		false); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		mustTxn(t, leader, put("k", fmt.Sprint(i)))
	}
	mustCompact(t, leader, 6, true)
	mustCatchUp(t, follower)
	res, err := follower.Reader.Range(t.Context(), auth.System,
		&mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k")}}, false)
	if err != nil || string(res.Records[0].Value) != "4" {
		t.Fatalf("read %+v, %v", res, err)
	}
	for {
		r, err := watcher.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Events) > 0 {
			t.Fatal("the watcher was sent events although it missed some")
		}
		if r.Canceled {
			if r.CompactRevision != 6 {
				t.Fatalf("cancelled at %d, want 6", r.CompactRevision)
			}
			return
		}
	}
}

// TestResignationShortensTakeover: what a leader leaves behind when it stops tells
// the next one that nobody else answers; nothing else does.
func TestResignationShortensTakeover(t *testing.T) {
	store := newStore(t)
	p := newPair(t, store, func(c *Config) { c.Handover = eventually.Deadline })
	p.lead(0)
	if p.nodes[0].leading.Load().holder.PredecessorMayAnswer() {
		t.Error("nobody led before the first leader")
	}
	mustTxn(t, p.nodes[0], put("k", "1"))
	first := p.nodes[0].leading.Load()
	p.mustResign(0)
	if err := first.VerifyLeader(t.Context()); !errors.Is(err, mvcc.ErrNotLeader) {
		t.Errorf("a leader that resigned says %v", err)
	}
	p.lead(1)
	if p.nodes[1].leading.Load().holder.PredecessorMayAnswer() {
		t.Error("the second waited for the first, which had resigned")
	}
	p.lead(0)
	if !p.nodes[0].leading.Load().holder.PredecessorMayAnswer() {
		t.Error("the third did not wait for the second, which had not resigned")
	}
	mustTxn(t, p.nodes[0], put("k", "2"))
}

// late is a store whose commits take effect at once, and are answered when the test
// says so.
type late struct {
	sqlstore.Store
	mu   sync.Mutex
	hold chan struct{} // nil: at once
}

func (s *late) wait() {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
}

// holdCommits holds the answers of commits of the key k back until release is called, which may
// be called twice.
func (s *late) holdCommits() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hold := make(chan struct{})
	s.hold = hold
	return sync.OnceFunc(func() { close(hold) })
}

func (s *late) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		err := b.BatchWrite.Commit(ctx)
		if b.Writes(coder.EncodeIndexKey([]byte("k"))) { // and not one that the leader makes by itself
			s.wait()
		}
		return err
	})
}

// TestFollowerHidesCommitUnknownToLeader: a follower may find it in the table first.
// What any node has shown, every linearizable read shows from then on.
func TestFollowerHidesCommitUnknownToLeader(t *testing.T) {
	store := &late{Store: newStore(t)}
	_, leader, follower := newLedPair(t, store)
	mustTxn(t, leader, put("k", "1"))
	mustCatchUp(t, follower)
	release := store.holdCommits()
	written := make(chan struct{})
	go func() {
		defer close(written)
		if _, err := leader.Txn(t.Context(), auth.System, put("k", "2"), true); err != nil {
			t.Error(err)
		}
	}()
	for follower.Revision() < 3 { // as its node does without a feed
		if err := follower.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	read := make(chan string)
	go func() {
		res, err := leader.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all()}, true)
		if err != nil {
			t.Error(err)
			read <- ""
			return
		}
		read <- string(res.Records[0].Value)
	}()
	select {
	case v := <-read:
		if v != "2" {
			t.Errorf("the leader reads %q after a follower has shown 2", v)
		}
		release()
	case <-time.After(100 * time.Millisecond): // it waits for its commit
		release()
		if v := <-read; v != "2" {
			t.Errorf("the leader reads %q after a follower has shown 2", v)
		}
	}
	<-written
}
