package backend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// slow is a store whose lists take a while to come back, so that what they hold is
// old by then.
type slow struct {
	sqlstore.Store
	mu   sync.Mutex
	rand *rand.Rand
}

func (s *slow) List(ctx context.Context, q sqlstore.ListQuery) ([]sqlstore.ListRow, bool, error) {
	rows, more, err := s.Store.List(ctx, q)
	s.mu.Lock()
	d := time.Duration(s.rand.IntN(3)*s.rand.IntN(400)) * time.Microsecond
	s.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
	return rows, more, err
}

// besides are two nodes that answer from memory, and the table they are on.
type besides struct {
	t     *testing.T
	table sqlstore.Store
	pair  *pair

	compared, compacted atomic.Int64
}

// fromTable answers q at revision rev without any cache. ok is false if compaction
// took what it takes.
func (s *besides) fromTable(ctx context.Context, q *RangeRequest, rev int64) (res *RangeResult, ok bool, err error) {
	off, err := newRangeCache(0, func(int) {})
	if err != nil {
		return nil, false, err
	}
	counts, err := newCountCache()
	if err != nil {
		return nil, false, err
	}
	mark := func(ctx context.Context) (int64, error) { return loadMark(ctx, s.table) }
	r := &reader{store: s.table, records: newRecordCache(0), ranges: off, counts: counts, pieces: newCountMap(countPieceKeys, countChangesKept, rev), frontier: func() int64 { return rev }, mark: mark}
	res, err = r.at(rev).rangeOf(ctx, q)
	m, merr := mark(ctx)
	if merr != nil {
		return nil, false, merr
	}
	if rev < m {
		return nil, false, nil
	}
	return res, true, err
}

// compare asks a node for q and the table for the same.
func (s *besides) compare(ctx context.Context, b *Backend, q *RangeRequest, linearizable, stream bool) (*RangeResult, error) {
	known := b.CompactRevision()
	ask := b.Range
	if stream {
		ask = collectStream(b)
	}
	got, err := ask(ctx, q, linearizable)
	switch {
	case errors.Is(err, ErrCompacted):
		if mark, merr := loadMark(ctx, s.table); merr != nil || max(q.Revision, 1) >= mark && !stream {
			return nil, fmt.Errorf("%+v: %w, but the mark is %d, %v", q, err, mark, merr)
		}
		s.compacted.Add(1)
		return nil, nil
	case errors.Is(err, ErrFutureRevision):
		if q.Revision <= b.Revision()-100 {
			return nil, fmt.Errorf("%+v: %w, but the node is at %d", q, err, b.Revision())
		}
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%+v: %w", q, err)
	case q.Revision > 0 && q.Revision < known:
		return nil, fmt.Errorf("%+v is answered, the compact revision was %d before", q, known)
	}
	rev := q.Revision
	if rev <= 0 {
		rev = got.Revision
	}
	want, ok, err := s.fromTable(ctx, q, rev)
	if err != nil || !ok {
		return got, err
	}
	if stream && !want.More && !q.CountOnly {
		want.Count = int64(len(want.Records))
	}
	want.Revision = got.Revision
	if g, w := describe(got), describe(want); g != w {
		return nil, fmt.Errorf("%+v at revision %d (linearizable %t, stream %t):\n got %s\nwant %s", q, rev, linearizable, stream, g, w)
	}
	s.compared.Add(1)
	return got, nil
}

func collectStream(b *Backend) func(context.Context, *RangeRequest, bool) (*RangeResult, error) {
	return func(ctx context.Context, q *RangeRequest, linearizable bool) (*RangeResult, error) {
		all := &RangeResult{}
		err := b.RangeStream(ctx, q, linearizable, 700, func(chunk *RangeResult, last bool) error {
			all.Records = append(all.Records, chunk.Records...)
			if last {
				all.Revision, all.Count, all.More = chunk.Revision, chunk.Count, chunk.More
			}
			return nil
		})
		return all, err
	}
}

// questions are random ranges over keys that random transactions change.
type questions struct{ *rand.Rand }

func (g questions) key() []byte {
	if g.IntN(8) == 0 {
		return []byte(modelKeys[g.IntN(len(modelKeys))])
	}
	return fmt.Appendf(nil, "b/%d/%02d", g.IntN(3), g.IntN(20))
}

func (g questions) keyRange() KeyRange {
	switch g.IntN(8) {
	case 0:
		return KeyRange{Key: g.key()}
	case 1:
		return KeyRange{Key: g.key(), End: g.key()}
	case 2:
		return all()
	case 3:
		return KeyRange{Key: g.key(), End: []byte{0}}
	case 4:
		return KeyRange{Key: behind(g.key()), End: []byte("b0")}
	case 5:
		return KeyRange{Key: []byte("b/"), End: []byte("b0")}
	default:
		n := g.IntN(3)
		return KeyRange{Key: fmt.Appendf(nil, "b/%d/", n), End: fmt.Appendf(nil, "b/%d0", n)}
	}
}

func (g questions) request(b *Backend) *RangeRequest {
	q := &RangeRequest{KeyRange: g.keyRange(), KeysOnly: g.IntN(5) == 0, CountOnly: g.IntN(6) == 0}
	if g.IntN(2) == 0 {
		q.Limit = int64(1 + g.IntN(12))
	}
	cur := b.Revision()
	switch g.IntN(6) {
	case 0:
		q.Revision = max(1, cur-g.Int64N(8))
	case 1:
		lowest := max(b.CompactRevision()-2, 1)
		q.Revision = lowest + g.Int64N(max(cur-lowest, 0)+2)
	}
	if g.IntN(4) == 0 {
		q.SortBy, q.SortOrder = SortTarget(g.IntN(5)), SortOrder(g.IntN(3))
	}
	if g.IntN(6) == 0 {
		q.MinModRevision, q.MaxModRevision = g.Int64N(cur+1), g.Int64N(cur+1)
	}
	if g.IntN(6) == 0 {
		q.MinCreateRevision, q.MaxCreateRevision = g.Int64N(cur+1), g.Int64N(cur+1)
	}
	return q
}

func (g questions) value() []byte {
	size := g.IntN(60)
	if g.IntN(30) == 0 {
		size = 3000
	}
	v := make([]byte, size)
	for i := range v {
		v[i] = 'a' + byte(g.IntN(26))
	}
	return v
}

func (g questions) txn() *Txn {
	t := &Txn{}
	used := make(map[string]bool)
	for range 1 + g.IntN(3) {
		k := g.key()
		if used[string(k)] {
			continue
		}
		used[string(k)] = true
		if g.IntN(3) == 0 {
			t.Then = append(t.Then, Op{Delete: &DeleteRequest{KeyRange: KeyRange{Key: k}}})
		} else {
			t.Then = append(t.Then, Op{Put: &PutRequest{Key: k, Value: g.value(), PrevKV: g.IntN(2) == 0}})
		}
	}
	if g.IntN(20) == 0 {
		n := g.IntN(3)
		t.Then = []Op{{Delete: &DeleteRequest{KeyRange: KeyRange{Key: fmt.Appendf(nil, "b/%d/1", n), End: fmt.Appendf(nil, "b/%d/2", n)}}}}
	}
	return t
}

// read asks node b questions until ctx ends: single ranges, and lists by pages.
func (s *besides) read(ctx context.Context, b *Backend, g questions) error {
	for ctx.Err() == nil {
		q, linearizable := g.request(b), g.IntN(3) == 0
		stream := q.SortOrder == SortNone && q.SortBy == SortByKey && !q.filtered() && g.IntN(3) == 0
		res, err := s.compare(ctx, b, q, linearizable, stream)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if g.IntN(3) > 0 || q.Limit == 0 || len(q.End) == 0 || q.SortBy != SortByKey || q.SortOrder == SortDescend || q.filtered() {
			continue
		}
		for res != nil && res.More && len(res.Records) > 0 && ctx.Err() == nil {
			page := *q
			if page.Key = behind(res.Records[len(res.Records)-1].Key); page.Revision <= 0 {
				page.Revision = res.Revision
			}
			q = &page
			if res, err = s.compare(ctx, b, q, false, stream); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

// write changes keys and compacts, through whoever leads.
func (s *besides) write(ctx context.Context, g questions, n int) error {
	for range n {
		s.pair.mu.Lock()
		b := s.pair.nodes[s.pair.leader]
		s.pair.mu.Unlock()
		var err error
		if g.IntN(40) == 0 {
			_, err = b.Compact(ctx, max(b.Revision()-g.Int64N(60), 1), g.IntN(2) == 0)
		} else {
			_, err = b.Txn(ctx, g.txn(), true)
		}
		if err != nil && !errors.Is(err, ErrCompacted) && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrLeaderLost) {
			return err
		}
	}
	return nil
}

// follow keeps node b at what the table holds until ctx ends.
func (s *besides) follow(ctx context.Context, b *Backend) error {
	for ctx.Err() == nil {
		rev, err := b.Check(ctx)
		if err == nil {
			b.shown.raise(rev)
			err = b.CatchUp(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// TestRangesFromMemoryAreTheTables: whatever is asked, of a leader and a follower,
// while keys change, history is compacted and others lead, the answer is the
// table's at that revision. The caches are small, so that they know parts only.
func TestRangesFromMemoryAreTheTables(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runBesides(t, seed, 3, 100) })
	}
}

func runBesides(t *testing.T, seed uint64, phases, writes int) {
	r := rand.New(rand.NewPCG(seed, 3))
	budget := []int{6000, 20_000, 60_000, 4 << 20}[r.IntN(4)]
	table := newStore(t)
	s := &besides{t: t, table: table}
	s.pair = newPairWith(t, &slow{Store: table, rand: rand.New(rand.NewPCG(seed, 4))}, func(c *Config) {
		c.RecordCache = budget
		c.countPieceKeys, c.countChanges = 4, []int{4, 30}[seed%2]
	})
	var readers sync.WaitGroup
	reading, stop := context.WithCancel(t.Context())
	for i := range 4 {
		g := questions{rand.New(rand.NewPCG(seed, 100+uint64(i)))}
		readers.Go(func() {
			if err := s.read(reading, s.pair.nodes[i%2], g); err != nil {
				t.Error(err)
			}
		})
	}
	for phase := range phases {
		leader := phase % 2
		s.pair.lead(leader)
		var writers, followers sync.WaitGroup
		following, enough := context.WithCancel(t.Context())
		followers.Go(func() {
			if err := s.follow(following, s.pair.nodes[1-leader]); err != nil {
				t.Error(err)
			}
		})
		for i := range 2 {
			g := questions{rand.New(rand.NewPCG(seed, uint64(1000+10*phase+i)))}
			writers.Go(func() {
				if err := s.write(t.Context(), g, writes); err != nil {
					t.Error(err)
				}
			})
		}
		writers.Wait()
		if err := s.pair.resign(leader); err != nil {
			t.Error(err)
		}
		enough()
		followers.Wait()
	}
	stop()
	readers.Wait()
	hits, misses := 0.0, 0.0
	for _, b := range s.pair.nodes {
		checkRangeCache(t, b.ranges)
		hits += testutil.ToFloat64(b.metrics.rangeHits)
		misses += testutil.ToFloat64(b.metrics.rangeMisses)
	}
	t.Logf("seed %d, %d bytes: %d answers compared, %d compacted, %.0f from memory, %.0f not", seed, budget, s.compared.Load(), s.compacted.Load(), hits, misses)
	if s.compared.Load() == 0 || hits == 0 || misses == 0 {
		t.Error("this tests nothing")
	}
}

// TestACountThatCompactionSpoiltIsForgotten: a follower that counted rows of which
// compaction had taken some does not answer with that number later.
func TestACountThatCompactionSpoiltIsForgotten(t *testing.T) {
	p := newPair(t, newStore(t))
	p.lead(0)
	leader, follower := p.nodes[0], p.nodes[1]
	for i := range 5 {
		mustTxn(t, leader, put(fmt.Sprint("k", i), "1"))
	}
	for i := range 5 {
		mustTxn(t, leader, del(fmt.Sprint("k", i)))
	}
	if err := catchUp(t, follower); err != nil {
		t.Fatal(err)
	}
	if _, err := leader.Compact(t.Context(), 11, true); err != nil {
		t.Fatal(err)
	}
	q := &RangeRequest{KeyRange: KeyRange{Key: []byte("k"), End: []byte("l")}, Revision: 6, CountOnly: true}
	for range 2 {
		// What a read finds that began before the node heard of the compaction.
		read := follower.reader.at(q.Revision)
		if res, err := read.rangeOf(t.Context(), q); err != nil && !errors.Is(err, ErrCompacted) || !read.table {
			t.Fatalf("counted %+v from memory, %v", res, err)
		}
		if res, err := follower.Range(t.Context(), q, false); !errors.Is(err, ErrCompacted) {
			t.Fatalf("a count below the compact revision: %+v, %v", res, err)
		}
	}
}

// TestMemoryDoesNotReachBelowACompaction: of keys whose tombstones compaction
// removed nothing is left to fill from, so what was filled then says nothing of the
// revisions at which they existed, to a read that began before the node heard of
// the compaction.
func TestMemoryDoesNotReachBelowACompaction(t *testing.T) {
	p := newPair(t, newStore(t))
	p.lead(0)
	leader, follower := p.nodes[0], p.nodes[1]
	mustTxn(t, leader, put("k", "1"))
	mustTxn(t, leader, del("k"))
	mustTxn(t, leader, put("z", "1"))
	if err := catchUp(t, follower); err != nil {
		t.Fatal(err)
	}
	if _, err := leader.Compact(t.Context(), 4, true); err != nil {
		t.Fatal(err)
	}
	q := &RangeRequest{KeyRange: KeyRange{Key: []byte("k"), End: []byte("l")}}
	for rev, known := range map[int64]bool{2: false, 4: true} {
		for range 2 {
			read := follower.reader.at(4)
			if _, err := read.rangeOf(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		read := follower.reader.at(rev)
		if res, err := read.rangeOf(t.Context(), q); err != nil || read.table == known {
			t.Errorf("revision %d: %+v, %v, read from the table is %t", rev, res, err, read.table)
		}
	}
}

// BenchmarkList reads pages of 500 objects of 1 KiB, from memory and from the table.
func BenchmarkList(b *testing.B) {
	for name, budget := range map[string]int{"memory": 64 << 20, "table": -1} {
		b.Run(name, func(b *testing.B) {
			n := open(b, newStore(b), func(c *Config) { c.RecordCache = budget })
			value := make([]byte, 1024)
			for i := range 5000 {
				mustTxn(b, n, &Txn{Then: []Op{{Put: &PutRequest{Key: fmt.Appendf(nil, "/registry/pods/%05d", i), Value: value}}}})
			}
			q := &RangeRequest{KeyRange: KeyRange{Key: []byte("/registry/pods/02"), End: []byte("/registry/pods0")}, Limit: 500}
			mustRange(b, n, q)
			b.ReportAllocs()
			for b.Loop() {
				if res := mustRange(b, n, q); len(res.Records) != 500 || res.Count != 3000 {
					b.Fatal(len(res.Records), res.Count)
				}
			}
		})
	}
}

// BenchmarkRangeCacheSet takes in changes of keys that are kept in segments.
func BenchmarkRangeCacheSet(b *testing.B) {
	c, err := newRangeCache(256<<20, func(int) {})
	if err != nil {
		b.Fatal(err)
	}
	c.fill([]byte{0}, nil, true).keep(nil, nil, 1)
	keys := make([][]byte, 100_000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "/registry/pods/%06d", i)
		c.set(&coder.Record{Key: keys[i], Value: make([]byte, 1024), ModRevision: int64(i) + 2})
	}
	value, rev := make([]byte, 1024), int64(len(keys)+2)
	b.ReportAllocs()
	for b.Loop() {
		rev++
		c.set(&coder.Record{Key: keys[rev*7919%int64(len(keys))], Value: value, ModRevision: rev})
	}
}
