package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

// countLog is a store that notes which rows are counted.
type countLog struct {
	sqlstore.Store
	mu      sync.Mutex
	rows    int64
	counts  int
	entered func(ctx context.Context) error
}

func (s *countLog) Count(ctx context.Context, lo, hi []byte, rev int64) (n, newer int64, err error) {
	if s.entered != nil {
		if err := s.entered(ctx); err != nil {
			return 0, 0, err
		}
	}
	n, newer, err = s.Store.Count(ctx, lo, hi, rev)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts++
	s.rows += n + newer
	return n, newer, err
}

// reset returns how many rows were counted since the last call, in how many counts.
func (s *countLog) reset() (rows int64, counts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, counts = s.rows, s.counts
	s.rows, s.counts = 0, 0
	return rows, counts
}

const countedKeys, countedSpan = 1000, 50

func openCounted(t *testing.T) (*countLog, *Replica) {
	s := &countLog{Store: newStore(t)}
	b := open(t, s, func(c *Config) { c.RecordCache = 0; c.CountSpanKeys = countedSpan }) // else counts come from memory
	for i := range countedKeys {
		mustTxn(t, b, put(fmt.Sprintf("k%03d", i), ""))
	}
	return s, b
}

func pageFrom(i int) *mvcc.RangeRequest {
	return &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: fmt.Appendf(nil, "k%03d", i), End: []byte("l")}, Limit: 1}
}

// TestRepeatedCountReadsOnlyItsEnds: once the keys were counted, a page from any key costs no more
// than a counted span or two, whatever is behind it, and whatever comes and goes there.
func TestRepeatedCountReadsOnlyItsEnds(t *testing.T) {
	s, b := openCounted(t)
	if res := mustRange(t, b, pageFrom(0)); res.Count != countedKeys {
		t.Fatalf("counted %d of %d keys", res.Count, countedKeys)
	}
	if rows, _ := s.reset(); rows != countedKeys {
		t.Errorf("%d rows were counted for the first page, of %d", rows, countedKeys)
	}
	r := rand.New(rand.NewPCG(1, 1))
	there := make([]bool, countedKeys)
	for i := range there {
		there[i] = true
	}
	for range 200 {
		i, from := r.IntN(countedKeys), r.IntN(countedKeys-10)
		if there[i] = !there[i]; there[i] {
			mustTxn(t, b, put(fmt.Sprintf("k%03d", i), ""))
		} else {
			mustTxn(t, b, del(fmt.Sprintf("k%03d", i)))
		}
		want := int64(0)
		for _, is := range there[from:] {
			if is {
				want++
			}
		}
		if res := mustRange(t, b, pageFrom(from)); res.Count != want {
			t.Fatalf("counted %d keys from %d on, not %d", res.Count, from, want)
		}
		if rows, counts := s.reset(); rows > 3*countedSpan || counts > 2 {
			t.Errorf("%d rows in %d statements were counted for a page from key %d", rows, counts, from)
		}
	}
}

// TestCountContinuesAfterCountedSpans: the keys of a list may be too many to be counted
// while its client waits.
func TestCountContinuesAfterCountedSpans(t *testing.T) {
	s, b := openCounted(t)
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithCancel(t.Context())
		left := 5
		s.entered = func(ctx context.Context) error {
			if left--; left < 0 {
				cancel()
			}
			return ctx.Err()
		}
		res, err := b.Reader.Range(ctx, auth.System, pageFrom(0), true)
		cancel()
		if err == nil {
			if res.Count != countedKeys || tries != countedKeys/countedSpan/5 {
				t.Errorf("counted %d keys at the %dth request", res.Count, tries)
			}
			break
		}
		if !errors.Is(err, context.Canceled) || tries > 10 {
			t.Fatalf("request %d: %v", tries, err)
		}
	}
}

// TestSpanCountedDuringCompactionIsNotKept: rows that a node has not heard of the
// deletion of may be gone when it counts them.
func TestSpanCountedDuringCompactionIsNotKept(t *testing.T) {
	p, leader, follower := newLedPair(t, newStore(t), func(c *Config) { c.RecordCache = 0; c.CountSpanKeys = 2 })
	for _, prefix := range []string{"k", "z"} {
		for i := range 5 {
			mustTxn(t, leader, put(fmt.Sprint(prefix, i), "1"))
		}
	}
	mustCatchUp(t, follower)
	known := follower.Revision()
	mustTxn(t, leader, del("k0"))
	mustTxn(t, leader, put("z0", "2"))
	mustCompact(t, leader, leader.Revision(), true)
	q := &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("a"), End: []byte{0}}, CountOnly: true}
	if _, err := follower.Reader.At(known).Range(t.Context(), q); err != nil && !errors.Is(err, mvcc.ErrCompacted) {
		t.Fatal(err)
	}
	// It hears of them late, but from the leader, not from the log, whose rows are gone.
	if err := follower.Apply(Update{Term: 1, Revision: known + 2, CompactRevision: known + 2, Events: []*watch.Event{
		{Type: watch.Delete, Record: &coder.Record{Key: []byte("k0"), ModRevision: known + 1}, PrevRevision: 2},
		{Type: watch.Put, Record: &coder.Record{Key: []byte("z0"), ModRevision: known + 2, CreateRevision: 7, Version: 2},
			PrevRevision: 7},
	}}); err != nil {
		t.Fatal(err)
	}
	for _, b := range p.nodes {
		if res, err := b.Reader.Range(t.Context(), auth.System, q, false); err != nil || res.Count != 9 {
			t.Errorf("%+v, %v, not 9 keys", res, err)
		}
	}
}

func TestConcurrentCountsShareReads(t *testing.T) {
	s, b := openCounted(t)
	const requests = 8
	errs := make([]error, requests)
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			res, err := b.Reader.Range(t.Context(), auth.System, pageFrom(0), true)
			if err == nil && res.Count != countedKeys {
				err = fmt.Errorf("counted %d keys", res.Count)
			}
			errs[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if rows, counts := s.reset(); rows != countedKeys {
		t.Errorf("%d rows in %d statements were counted", rows, counts)
	}
}

// TestEmptyCountedSpansAreMerged: keys that come behind all others while the first ones go
// must not leave counted spans behind for ever.
func TestEmptyCountedSpansAreMerged(t *testing.T) {
	s := &countLog{Store: newStore(t)}
	b := open(t, s, func(c *Config) { c.RecordCache = 0; c.CountSpanKeys = 4 })
	const window = 40
	for i := range 1000 {
		mustTxn(t, b, put(fmt.Sprintf("k%04d", i), ""))
		if i < window {
			continue
		}
		mustTxn(t, b, del(fmt.Sprintf("k%04d", i-window)))
		if res := mustRange(t, b, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k"), End: []byte("l")},
			Limit: 1}); res.Count != window {
			t.Fatalf("counted %d keys", res.Count)
		}
	}
	if n := b.view.Stats().Counted; n > window/2 {
		t.Errorf("there are %d counted spans for %d keys", n, window)
	}
}
