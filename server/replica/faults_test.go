package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// unreliable is a store whose commits and reads fail in every way a database
// across a network can fail, some taking effect long after.
type unreliable struct {
	sqlstore.Store

	mu   sync.Mutex
	rnd  *rand.Rand
	rate int // one commit in so many fails; 0: none
	late []func() error
	t    testing.TB
}

func (u *unreliable) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(u.Store.BeginBatchWrite(), u.commit)
}

func (u *unreliable) roll() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.rate == 0 || u.rnd.IntN(u.rate) != 0 {
		return 0
	}
	return 1 + u.rnd.IntN(4)
}

func (u *unreliable) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	if u.roll() == 1 {
		return nil, fmt.Errorf("%w: made up", sqlstore.ErrUnavailable)
	}
	return u.Store.MultiGet(ctx, keys)
}

func (u *unreliable) commit(ctx context.Context, b *storetest.Batch) error {
	u.deliverLate()
	switch u.roll() {
	case 1:
		return fmt.Errorf("%w: made up", sqlstore.ErrUnavailable)
	case 2:
		return fmt.Errorf("%w: lost on the way", sqlstore.ErrUncertain)
	case 3:
		if err := b.BatchWrite.Commit(ctx); err != nil {
			return err
		}
		return fmt.Errorf("%w: lost on the way back", sqlstore.ErrUncertain)
	case 4:
		u.mu.Lock()
		u.late = append(u.late, func() error { return b.BatchWrite.Commit(context.Background()) })
		u.mu.Unlock()
		return fmt.Errorf("%w: on its way still", sqlstore.ErrUncertain)
	}
	return b.BatchWrite.Commit(ctx)
}

// deliverLate lets commits that were believed lost reach the database, half of
// the time.
func (u *unreliable) deliverLate() {
	u.mu.Lock()
	if len(u.late) == 0 || u.rnd.IntN(2) == 0 {
		u.mu.Unlock()
		return
	}
	late := u.late[0]
	u.late = u.late[1:]
	u.mu.Unlock()
	var conflict *sqlstore.Conflict
	if err := late(); err != nil && !errors.As(err, &conflict) {
		u.t.Errorf("late commit: %v", err)
	}
}

func increment(key string, from *coder.Record) *mvcc.Txn {
	n, rev := 0, int64(0)
	if from != nil {
		n, _ = strconv.Atoi(string(from.Value))
		rev = from.ModRevision
	}
	k := []byte(key)
	return &mvcc.Txn{
		Compares: []mvcc.Compare{{KeyRange: mvcc.KeyRange{Key: k}, Target: mvcc.CompareMod, Int: rev}},
		Then:     []mvcc.Op{{Put: &mvcc.PutRequest{Key: k, Value: []byte(strconv.Itoa(n + 1))}}},
		Else:     []mvcc.Op{{Range: &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: k}}}},
	}
}

// TestUnknownOutcomesAreResolved runs counters against an unreliable database:
// every increment counts exactly once, revisions have no gaps, and a watch sees
// each of them once and in order.
func TestUnknownOutcomesAreResolved(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			u := &unreliable{Store: newStore(t), rnd: rand.New(rand.NewPCG(seed, 2)), t: t}
			b := open(t, u, nil)
			stream := b.Hub.NewStream()
			defer stream.Close()
			stream.Create(watch.Permitted, watch.CreateRequest{Key: []byte("c"), End: []byte("d"), StartRevision: 2,
				PrevKV: true})
			u.mu.Lock()
			u.rate = 5
			u.mu.Unlock()
			done := runCounters(t, b, 6, 30)
			u.mu.Lock()
			u.rate = 0
			u.mu.Unlock()

			total := int64(0)
			for key, want := range done {
				got := mustRange(t, b, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte(key)}})
				if v := string(got.Records[0].Value); v != strconv.Itoa(want) {
					t.Errorf("%s is %s after %d acknowledged increments", key, v, want)
				}
				total += int64(want)
			}
			if b.Revision() != 1+total {
				t.Errorf("revision %d after %d writes", b.Revision(), total)
			}
			expectContiguous(t, stream, 2, b.Revision())
		})
	}
}

// runCounters has workers increment three shared counters, and returns how many
// increments of each were acknowledged.
func runCounters(t *testing.T, b *Replica, workers, increments int) map[string]int {
	var mu sync.Mutex
	done := make(map[string]int)
	var wg sync.WaitGroup
	wg.Go(func() { // leases take no revision, and are resolved all the same
		for id := int64(1); id <= int64(increments); {
			_, err := lessor(t, b).Grant(t.Context(), auth.System, id, 3600)
			if errors.Is(err, sqlstore.ErrUnavailable) {
				continue
			}
			if err != nil {
				t.Errorf("granting lease %d: %v", id, err)
				return
			}
			if _, err := b.store.Get(t.Context(), coder.EncodeLeaseKey(id)); err != nil {
				t.Errorf("lease %d was acknowledged, the table says: %v", id, err)
			}
			id++
		}
	})
	for w := range workers {
		wg.Go(func() {
			key := fmt.Sprint("c", w%3)
			var known *coder.Record
			for n := 0; n < increments; {
				res, err := b.Txn(t.Context(), auth.System, increment(key, known), true)
				if errors.Is(err, sqlstore.ErrUnavailable) {
					continue // a read failed; nothing was executed
				}
				if err != nil {
					t.Errorf("increment: %v", err)
					return
				}
				if !res.Succeeded {
					known = nil
					if recs := res.Results[0].Range.Records; len(recs) > 0 {
						known = recs[0]
					}
					continue
				}
				n++
				mu.Lock()
				done[key]++
				mu.Unlock()
				known = nil
			}
		})
	}
	wg.Wait()
	return done
}

// expectContiguous reads one event for each revision in [from, to].
func expectContiguous(t *testing.T, stream *watch.Stream, from, to int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	last := make(map[string]*coder.Record)
	for next := from; next <= to; {
		resp, err := stream.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for revision %d of %d: %v", next, to, err)
		}
		if resp.Canceled {
			t.Fatalf("cancelled: %+v", resp)
		}
		for i, e := range resp.Events {
			if e.Record.ModRevision != next {
				t.Fatalf("event of revision %d, want %d", e.Record.ModRevision, next)
			}
			k := string(e.Record.Key)
			if prev := resp.Prev[i]; prev != nil && last[k] != nil &&
				(prev.ModRevision != last[k].ModRevision || string(prev.Value) != string(last[k].Value)) {
				t.Fatalf("previous version of %s at %d is %s@%d, want %s@%d", k, next, prev.Value, prev.ModRevision, last[k].Value,
					last[k].ModRevision)
			} else if (prev == nil) != (last[k] == nil) {
				t.Fatalf("previous version of %s at %d: got %v, want %v", k, next, prev, last[k])
			}
			last[k] = e.Record
			next++
		}
	}
}

func TestRandomHistoriesWithoutCachesMatchTheModel(t *testing.T) {
	// Watching from revision 2 with a tiny ring replays everything from rows.
	b := open(t, newStore(t), func(c *Config) { c.Watch.RingEvents = 4; c.RecordCache = 0 })
	done := runCounters(t, b, 4, 50)
	total := int64(0)
	for _, n := range done {
		total += int64(n)
	}
	stream := b.Hub.NewStream()
	defer stream.Close()
	stream.Create(watch.Permitted, watch.CreateRequest{Key: []byte("c"), End: []byte("d"), StartRevision: 2, PrevKV: true})
	expectContiguous(t, stream, 2, 1+total)
}

func TestDeposedLeaderCannotCommit(t *testing.T) {
	store := newStore(t)
	old := open(t, store, sharedStore)
	mustTxn(t, old, put("k", "1"))
	young := open(t, store, sharedStore)
	if old.Status().Term >= young.Status().Term {
		t.Fatalf("terms %d and %d", old.Status().Term, young.Status().Term)
	}
	if _, err := old.Txn(t.Context(), auth.System, put("k", "2"), true); !errors.Is(err, mvcc.ErrNotServing) ||
		!errors.Is(err, fence.ErrDeposed) {
		t.Fatalf("write on the deposed leader: %v", err)
	}
	if _, err := old.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all()}, false); !errors.Is(err,
		mvcc.ErrNotServing) {
		t.Fatalf("read on the deposed leader: %v", err)
	}
	if res := mustTxn(t, young, put("k", "3")); res.Revision != 3 {
		t.Fatalf("the new leader's write got revision %d, want 3", res.Revision)
	}
}

func TestIdleDeposedLeaderStopsLeading(t *testing.T) {
	store := newStore(t)
	old := open(t, store, sharedStore)
	l := old.leading.Load()
	open(t, store, sharedStore)
	l.lease.Expire()
	if err := l.authority.VerifyLeader(t.Context()); !errors.Is(err, fence.ErrDeposed) {
		t.Fatalf("the fence says %v", err)
	}
}

func TestDataLossStopsServing(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	mustTxn(t, b, put("k", "1"))
	backup, err := store.Get(t.Context(), coder.FenceKey())
	if err != nil {
		t.Fatal(err)
	}
	mustTxn(t, b, put("k", "2"))
	restore := store.BeginBatchWrite()
	restore.Put(coder.FenceKey(), backup)
	if err := restore.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Txn(t.Context(), auth.System, put("k", "3"), true); !errors.Is(err, fence.ErrDataLost) {
		t.Fatalf("writing on a token that went back: %v", err)
	}
	if got := b.Status().NotServing; !errors.Is(got, fence.ErrDataLost) {
		t.Fatalf("status says %v", got)
	}
}

// silent is a store that, while it is silent, answers no multi-get and no list.
type silent struct {
	sqlstore.Store
	on atomic.Bool
}

func (s *silent) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	if s.on.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.MultiGet(ctx, keys)
}

func (s *silent) List(ctx context.Context, q sqlstore.ListQuery) ([]sqlstore.ListRow, bool, error) {
	if s.on.Load() {
		<-ctx.Done()
		return nil, false, ctx.Err()
	}
	return s.Store.List(ctx, q)
}

func TestUnansweredReadDoesNotBlockWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &silent{Store: newStore(t)}
		b := open(t, store, func(c *Config) { c.Write.CommitTimeout = 500 * time.Millisecond })
		store.on.Store(true)
		for _, txn := range []*mvcc.Txn{put("k", "v"), {Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: all()}}}}} {
			if _, err := b.Txn(t.Context(), auth.System, txn, true); !errors.Is(err, mvcc.ErrTimeout) {
				t.Errorf("while the database is silent: %v", err)
			}
		}
		store.on.Store(false)
		if res := mustTxn(t, b, put("k", "v")); res.Revision != 2 {
			t.Errorf("the first write took revision %d", res.Revision)
		}
	})
}

func TestTableWithDataButNoFenceRowIsNotLed(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	mustTxn(t, b, put("k", "1"))
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	lose := store.BeginBatchWrite()
	lose.Del(coder.FenceKey())
	if err := lose.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLeader(t.Context(), store, testConfig(t)); !errors.Is(err, fence.ErrDataLost) {
		t.Fatalf("opening it: %v", err)
	}
}
