package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// pair is two replicas on one store, of which any may lead.
type pair struct {
	t     *testing.T
	nodes [2]*Replica
	stop  [2]context.CancelFunc
	ended [2]chan error
	leads sync.WaitGroup

	mu     sync.Mutex
	leader int // -1: none
}

// Position implements Leadership for both.
func (p *pair) Position(ctx context.Context) (Update, error) {
	p.mu.Lock()
	leader := p.leader
	p.mu.Unlock()
	if leader < 0 {
		return Update{}, mvcc.ErrNotLeader
	}
	return p.nodes[leader].Position(ctx)
}

func (p *pair) Leader() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leader < 0 {
		return 0
	}
	return p.nodes[p.leader].MemberID()
}

func newPair(t *testing.T, store sqlstore.Store) *pair {
	t.Helper()
	return newPairWith(t, store, func(*Config) {})
}

func newPairWith(t *testing.T, store sqlstore.Store, change func(*Config)) *pair {
	t.Helper()
	p := &pair{t: t, leader: -1}
	for i := range p.nodes {
		cfg := testConfig(t, func(c *Config) { c.Name, c.Leadership = fmt.Sprint("n", i), p })
		change(&cfg)
		b, err := OpenFollower(t.Context(), store, cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.nodes[i] = b
		t.Cleanup(func() { closeReplica(t, b) })
	}
	return p
}

// lead makes node i lead until resign or the end of the test.
func (p *pair) lead(i int) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.stop[i], p.ended[i] = cancel, make(chan error, 1)
	leading := make(chan struct{})
	p.leads.Go(func() {
		p.ended[i] <- p.nodes[i].Lead(ctx, func(int64) {
			p.mu.Lock()
			p.leader = i
			p.mu.Unlock()
			close(leading)
		})
	})
	p.t.Cleanup(func() {
		cancel()
		p.leads.Wait()
	})
	select {
	case <-leading:
	case err := <-p.ended[i]:
		p.t.Fatal(err)
	}
}

// resign ends node i's leadership and returns what Lead did.
func (p *pair) resign(i int) error {
	p.stop[i]()
	return <-p.ended[i]
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
	if err := catchUp(t, follower); err != nil {
		t.Fatal(err)
	}
	if res := <-read; len(res.Records) != 1 || string(res.Records[0].Value) != "1" || res.Revision != 2 {
		t.Fatalf("read %+v", res)
	}
}

func TestApplyKeepsOrderAndReportsGaps(t *testing.T) {
	p := newPair(t, newStore(t))
	p.lead(0)
	leader, follower := p.nodes[0], p.nodes[1]
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
	if err := catchUp(t, follower); err != nil {
		t.Fatal(err)
	}
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
	if err := catchUp(t, old); err != nil {
		t.Fatal(err)
	}
	mustTxn(t, young, put("k", "3"))
	if err := p.resign(1); err != nil {
		t.Fatal(err)
	}
	p.lead(0)
	if res := mustTxn(t, old, put("k", "4")); res.Revision != 5 {
		t.Fatalf("revision %d, want 5", res.Revision)
	}
	if st, err := lessor(t, old).TimeToLive(t.Context(), auth.System, id, false); err != nil || st.GrantedTTL != 100 {
		t.Fatalf("the lease is %+v, %v", st, err)
	}
	expectContiguous(t, watcher, 2, 5)
}

// frozen is a store whose fence row cannot be read for a while, as by a leader that
// is cut off.
type frozen struct {
	sqlstore.Store
	mu  sync.Mutex
	err error
}

func (s *frozen) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *frozen) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err != nil && string(key) == string(coder.FenceKey()) {
		return nil, err
	}
	return s.Store.Get(ctx, key)
}

// TestCutOffLeaderRefusesLinearizableReads: once its read lease is over it
// has to ask the database, and a successor waits for that.
func TestCutOffLeaderRefusesLinearizableReads(t *testing.T) {
	shared := newStore(t)
	cut := &frozen{Store: shared}
	old := open(t, cut, sharedStore)
	mustTxn(t, old, put("k", "1"))
	cut.set(sqlstore.ErrUnavailable)
	young := open(t, shared, sharedStore)
	mustTxn(t, young, put("k", "2"))
	// What has no answer is given up soon.
	vain := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	res, err := old.Reader.Range(vain(), auth.System, &mvcc.RangeRequest{KeyRange: all()}, true)
	if err == nil {
		t.Fatalf("the old leader answered %q after its successor acknowledged another value", res.Records[0].Value)
	}
	if _, err := lessor(t, old).TimeToLive(vain(), auth.System, 1, false); err == nil {
		t.Fatal("the old leader answered for a lease")
	}
	failed := &mvcc.Txn{
		Compares: []mvcc.Compare{{KeyRange: mvcc.KeyRange{Key: []byte("k")}, Target: mvcc.CompareValue, Value: []byte("2")}},
		Then:     []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte("k"), Value: []byte("3")}}},
	}
	if res, err := old.Txn(vain(), auth.System, failed, true); err == nil {
		t.Fatalf("the old leader judged a compare: %+v", res)
	}
	cut.set(nil)
	if _, err := old.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all()}, true); !errors.Is(err,
		fence.ErrDeposed) {
		t.Fatalf("when it can ask again: %v", err)
	}
}

func TestFollowerChecksMarkAfterReading(t *testing.T) {
	p := newPair(t, newStore(t))
	p.lead(0)
	leader, follower := p.nodes[0], p.nodes[1]
	for i := range 5 {
		mustTxn(t, leader, put("k", fmt.Sprint(i)))
	}
	if err := catchUp(t, follower); err != nil {
		t.Fatal(err)
	}
	if _, err := leader.Compact(t.Context(), auth.System, 5, true); err != nil {
		t.Fatal(err)
	}
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
	p := newPair(t, newStore(t))
	p.lead(0)
	leader, follower := p.nodes[0], p.nodes[1]
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
	if _, err := leader.Compact(t.Context(), auth.System, 6, true); err != nil {
		t.Fatal(err)
	}
	if err := catchUp(t, follower); err != nil {
		t.Fatal(err)
	}
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

func TestFollowerStopsServingAfterDataLoss(t *testing.T) {
	store := newStore(t)
	p := newPair(t, store)
	p.lead(0)
	mustTxn(t, p.nodes[0], put("k", "1"))
	backup, err := store.Get(t.Context(), coder.FenceKey())
	if err != nil {
		t.Fatal(err)
	}
	mustTxn(t, p.nodes[0], put("k", "2"))
	if err := catchUp(t, p.nodes[1]); err != nil {
		t.Fatal(err)
	}
	if err := p.resign(0); err != nil {
		t.Fatal(err)
	}
	restore := store.BeginBatchWrite()
	restore.Put(coder.FenceKey(), backup)
	if err := restore.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.nodes[0].Lead(t.Context(), nil); !errors.Is(err, mvcc.ErrNotServing) ||
		!errors.Is(err, fence.ErrDataLost) {
		t.Fatalf("leading on: %v", err)
	}
	if err := p.nodes[1].CatchUp(t.Context()); !errors.Is(err, mvcc.ErrNotServing) || !errors.Is(err, fence.ErrDataLost) {
		t.Fatalf("following on: %v", err)
	}
	if err := p.nodes[1].Status().NotServing; !errors.Is(err, fence.ErrDataLost) {
		t.Fatalf("status says %v", err)
	}
}

// TestHandoverAnswersEveryRequest: requests that the leader does not get to are
// turned away, so that they can be made elsewhere; none is lost or done twice.
func TestHandoverAnswersEveryRequest(t *testing.T) {
	p := newPairWith(t, newStore(t), func(c *Config) { c.Handover = eventually.Patience })
	p.lead(0)
	var writers sync.WaitGroup
	var mu sync.Mutex
	acked := 0
	for w := range 8 {
		writers.Go(func() {
			for i := 0; ; i++ {
				_, err := p.nodes[0].Txn(t.Context(), auth.System, put(fmt.Sprint("k", w), fmt.Sprint(i)), true)
				switch {
				case err == nil:
					mu.Lock()
					acked++
					mu.Unlock()
				case errors.Is(err, mvcc.ErrNotLeader):
					return
				default:
					t.Errorf("write: %v", err)
					return
				}
			}
		})
	}
	eventually.True(t, "writes of all clients", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return acked >= 100
	})
	if err := p.resign(0); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	if rev := p.nodes[0].Revision(); rev != int64(1+acked) {
		t.Fatalf("%d writes were acknowledged, the revision is %d", acked, rev)
	}
}

// TestResignationShortensTakeover: what a leader leaves behind when it stops tells
// the next one that nobody else answers; nothing else does.
func TestResignationShortensTakeover(t *testing.T) {
	store := newStore(t)
	p := newPairWith(t, store, func(c *Config) { c.Handover = eventually.Patience })
	p.lead(0)
	if p.nodes[0].leading.Load().holder.PredecessorMayAnswer() {
		t.Error("nobody led before the first leader")
	}
	mustTxn(t, p.nodes[0], put("k", "1"))
	first := p.nodes[0].leading.Load()
	if err := p.resign(0); err != nil {
		t.Fatal(err)
	}
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

// holdCommits holds the answers of commits back until release is called, which may
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
		s.wait()
		return err
	})
}

// TestFollowerHidesCommitUnknownToLeader: a follower may find it in the table first.
// What any node has shown, every linearizable read shows from then on.
func TestFollowerHidesCommitUnknownToLeader(t *testing.T) {
	store := &late{Store: newStore(t)}
	p := newPair(t, store)
	p.lead(0)
	leader, follower := p.nodes[0], p.nodes[1]
	mustTxn(t, leader, put("k", "1"))
	if err := catchUp(t, follower); err != nil {
		t.Fatal(err)
	}
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

// TestOlderRevisionIsDataLossInAnyTerm: a follower that was told of a commit by
// the leader, and never read the fence row itself, does not take an older row of a
// term that is new to it for progress.
func TestOlderRevisionIsDataLossInAnyTerm(t *testing.T) {
	store := newStore(t)
	p := newPair(t, store)
	p.lead(0)
	follower := p.nodes[1]
	stream := p.nodes[0].Hub.NewStream()
	defer stream.Close()
	stream.Create(watch.Permitted, watch.CreateRequest{Key: []byte{0}, End: []byte{0}, StartRevision: 2})
	mustTxn(t, p.nodes[0], put("k", "1"))
	backup, err := store.Get(t.Context(), coder.FenceKey())
	if err != nil {
		t.Fatal(err)
	}
	mustTxn(t, p.nodes[0], put("k", "2"))
	for follower.Revision() < 3 {
		r, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Events) > 0 {
			rev := r.Events[len(r.Events)-1].Record.ModRevision
			if err := follower.Apply(Update{Term: 1, Revision: rev, Events: r.Events}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.resign(0); err != nil {
		t.Fatal(err)
	}
	restore := store.BeginBatchWrite()
	restore.Put(coder.FenceKey(), backup)
	if err := restore.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = follower.Lead(ctx, func(term int64) {
		t.Errorf("it leads in term %d", term)
		cancel()
	})
	if !errors.Is(err, mvcc.ErrNotServing) || !errors.Is(err, fence.ErrDataLost) {
		t.Errorf("leading on: %v", err)
	}
	if raw, err := store.Get(t.Context(), coder.FenceKey()); err != nil || string(raw) != string(backup) {
		t.Errorf("the fence row was changed: %v", err)
	}
}
