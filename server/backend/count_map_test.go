package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/btree"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

// checkPieces looks at what every operation must leave behind.
func (c *countMap) checkPieces(t *testing.T) {
	t.Helper()
	var last *countPiece
	c.pieces.Ascend(func(p *countPiece) bool {
		switch {
		case !before(p.start, p.end):
			t.Fatalf("a piece [%q, %q)", p.start, p.end)
		case last != nil && (last.end == nil || bytes.Compare(last.end, p.start) > 0):
			t.Fatalf("[%q, %q) reaches beyond %q", last.start, last.end, p.start)
		case p.n < 0:
			t.Fatalf("[%q, %q) has %d keys", p.start, p.end, p.n)
		}
		last = p
		return true
	})
}

// history is every state of a key space.
type countHistory []*btree.BTreeG[string]

func (h countHistory) count(rev int64, start, end []byte) (n int64) {
	h[rev].AscendGreaterOrEqual(string(start), func(k string) bool {
		if end != nil && k >= string(end) {
			return false
		}
		n++
		return true
	})
	return n
}

// TestTheCountMapAgainstAModel: keys come and go, pieces are taken in at revisions
// old and new, and every count is what the key space had at that revision.
func TestTheCountMapAgainstAModel(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := newCountMap(1+r.IntN(8), 1+r.IntN(30), 0)
		h := countHistory{btree.NewG(8, func(a, b string) bool { return a < b })}
		key := func() []byte { return fmt.Appendf(nil, "%03d", r.IntN(300)) }
		bounds := func() (start, end []byte) {
			if start, end = key(), key(); r.IntN(6) == 0 {
				return start, nil
			}
			if bytes.Compare(start, end) > 0 {
				start, end = end, start
			}
			return start, append(end, '0')
		}
		counted, whole := 0, 0
		for range 4000 {
			rev := int64(len(h) - 1)
			switch n := r.IntN(10); {
			case n < 5:
				next, k := h[rev].Clone(), key()
				e := &watch.Event{Record: &coder.Record{Key: k, ModRevision: rev + 1}}
				switch {
				case !next.Has(string(k)):
					next.ReplaceOrInsert(string(k))
				case r.IntN(2) == 0:
					next.Delete(string(k))
					e.Type, e.PrevRevision = watch.Delete, rev
				default:
					e.PrevRevision = rev
				}
				h = append(h, next)
				c.note(e)
			case n < 7:
				start, end := bounds()
				at := max(rev-r.Int64N(40), 0)
				c.add(start, end, h.count(at, start, end), at)
			default:
				from, end := bounds()
				at := max(rev-r.Int64N(40), 0)
				for {
					n, rest, ok := c.count(from, end, at)
					if ok != c.reaches(at) {
						t.Fatalf("seed %d: count at %d is %t, reaches %t", seed, at, ok, c.reaches(at))
					}
					if !ok {
						break
					}
					stop := end
					if rest != nil {
						stop = rest.start
					}
					if want := h.count(at, from, stop); (stop == nil || bytes.Compare(from, stop) < 0) && n != want {
						t.Fatalf("seed %d: [%q, %q) has %d keys at %d of %d, not %d", seed, from, stop, want, at, rev, n)
					}
					if counted++; rest == nil {
						whole++
						break
					}
					if !before(rest.start, rest.end) || before(end, rest.end) {
						t.Fatalf("seed %d: of [%q, %q) the stretch [%q, %q) is unknown", seed, from, end, rest.start, rest.end)
					}
					if from = rest.end; from == nil || !before(from, end) {
						break
					}
				}
			}
			c.checkPieces(t)
			if len(c.changes) > 2*c.kept {
				t.Fatalf("%d changes are kept", len(c.changes))
			}
		}
		if whole == 0 || whole == counted {
			t.Errorf("seed %d: %d of %d counts were whole", seed, whole, counted)
		}
	}
}

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

// take returns how many rows were counted since the last call, in how many counts.
func (s *countLog) take() (rows int64, counts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, counts = s.rows, s.counts
	s.rows, s.counts = 0, 0
	return rows, counts
}

const countedKeys, countedPiece = 1000, 50

func openCounted(t *testing.T) (*countLog, *Backend) {
	s := &countLog{Store: newStore(t)}
	b := open(t, s, func(c *Config) { c.RecordCache = -1; c.countPieceKeys = countedPiece }) // else counts come from memory
	for i := range countedKeys {
		mustTxn(t, b, put(fmt.Sprintf("k%03d", i), ""))
	}
	return s, b
}

func pageFrom(i int) *RangeRequest {
	return &RangeRequest{KeyRange: KeyRange{Key: fmt.Appendf(nil, "k%03d", i), End: []byte("l")}, Limit: 1}
}

// TestACountCostsItsEnds: once the keys were counted, a page from any key costs no more
// than a piece or two, whatever is behind it, and whatever comes and goes there.
func TestACountCostsItsEnds(t *testing.T) {
	s, b := openCounted(t)
	if res := mustRange(t, b, pageFrom(0)); res.Count != countedKeys {
		t.Fatalf("counted %d of %d keys", res.Count, countedKeys)
	}
	if rows, _ := s.take(); rows != countedKeys {
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
		if rows, counts := s.take(); rows > 3*countedPiece || counts > 2 {
			t.Errorf("%d rows in %d statements were counted for a page from key %d", rows, counts, from)
		}
	}
}

// TestACountGoesOnWhereTheLastOneEnded: the keys of a list may be too many to be counted
// while its client waits.
func TestACountGoesOnWhereTheLastOneEnded(t *testing.T) {
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
		res, err := b.Range(ctx, pageFrom(0), true)
		cancel()
		if err == nil {
			if res.Count != countedKeys || tries != countedKeys/countedPiece/5 {
				t.Errorf("counted %d keys at the %dth request", res.Count, tries)
			}
			break
		}
		if !errors.Is(err, context.Canceled) || tries > 10 {
			t.Fatalf("request %d: %v", tries, err)
		}
	}
}

// TestGapsBetweenPiecesAreClosed: lists of many small ranges leave pieces with gaps
// between them, which a count of everything must not look into each time.
func TestGapsBetweenPiecesAreClosed(t *testing.T) {
	s, b := openCounted(t)
	for i := 0; i < countedKeys; i += 100 {
		q := pageFrom(i)
		q.End = fmt.Appendf(nil, "k%03d", i+80)
		if res := mustRange(t, b, q); res.Count != 80 {
			t.Fatalf("counted %d keys", res.Count)
		}
	}
	for i, want := range []int64{countedKeys, 50} { // the second time the last one's end is left, of fewer keys than a piece
		mustTxn(t, b, put("k000", "else the count would be remembered"))
		s.take()
		if res := mustRange(t, b, pageFrom(0)); res.Count != countedKeys {
			t.Fatalf("counted %d keys", res.Count)
		}
		if rows, counts := s.take(); rows > want || counts > 2 && i > 0 {
			t.Errorf("count %d: %d rows in %d statements", i, rows, counts)
		}
	}
}

// TestAPieceThatCompactionSpoiltIsNotKept: rows that a node has not heard of the
// deletion of may be gone when it counts them.
func TestAPieceThatCompactionSpoiltIsNotKept(t *testing.T) {
	p := newPairWith(t, newStore(t), func(c *Config) { c.RecordCache = -1; c.countPieceKeys = 2 })
	p.lead(0)
	leader, follower := p.nodes[0], p.nodes[1]
	for _, prefix := range []string{"k", "z"} {
		for i := range 5 {
			mustTxn(t, leader, put(fmt.Sprint(prefix, i), "1"))
		}
	}
	if err := catchUp(t, follower); err != nil {
		t.Fatal(err)
	}
	known := follower.Revision()
	mustTxn(t, leader, del("k0"))
	mustTxn(t, leader, put("z0", "2"))
	if _, err := leader.Compact(t.Context(), leader.Revision(), true); err != nil {
		t.Fatal(err)
	}
	q := &RangeRequest{KeyRange: KeyRange{Key: []byte("a"), End: []byte{0}}, CountOnly: true}
	if _, err := follower.reader.at(known).rangeOf(t.Context(), q); err != nil && !errors.Is(err, ErrCompacted) {
		t.Fatal(err)
	}
	// It hears of them late, but from the leader, not from the log, whose rows are gone.
	if err := follower.Apply(Update{Term: 1, Revision: known + 2, CompactRevision: known + 2, Events: []*watch.Event{
		{Type: watch.Delete, Record: &coder.Record{Key: []byte("k0"), ModRevision: known + 1}, PrevRevision: 2},
		{Type: watch.Put, Record: &coder.Record{Key: []byte("z0"), ModRevision: known + 2, CreateRevision: 7, Version: 2}, PrevRevision: 7},
	}}); err != nil {
		t.Fatal(err)
	}
	for _, b := range p.nodes {
		if res, err := b.Range(t.Context(), q, false); err != nil || res.Count != 9 {
			t.Errorf("%+v, %v, not 9 keys", res, err)
		}
	}
}

func TestRequestsCountTogether(t *testing.T) {
	s, b := openCounted(t)
	const requests = 8
	errs := make([]error, requests)
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			res, err := b.Range(t.Context(), pageFrom(0), true)
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
	if rows, counts := s.take(); rows != countedKeys {
		t.Errorf("%d rows in %d statements were counted", rows, counts)
	}
}

// TestEmptyPiecesAreJoined: keys that come behind all others while the first ones go
// must not leave pieces behind for ever.
func TestEmptyPiecesAreJoined(t *testing.T) {
	s := &countLog{Store: newStore(t)}
	b := open(t, s, func(c *Config) { c.RecordCache = -1; c.countPieceKeys = 4 })
	const window = 40
	for i := range 1000 {
		mustTxn(t, b, put(fmt.Sprintf("k%04d", i), ""))
		if i < window {
			continue
		}
		mustTxn(t, b, del(fmt.Sprintf("k%04d", i-window)))
		if res := mustRange(t, b, &RangeRequest{KeyRange: KeyRange{Key: []byte("k"), End: []byte("l")}, Limit: 1}); res.Count != window {
			t.Fatalf("counted %d keys", res.Count)
		}
	}
	if n := b.pieces.len(); n > window/2 {
		var ends []string
		b.pieces.pieces.Ascend(func(p *countPiece) bool {
			ends = append(ends, fmt.Sprintf("%s:%d", p.start, p.n))
			return true
		})
		t.Errorf("there are %d pieces: %v", n, slices.Clip(ends))
	}
}
