package replica

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
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/mvcc/keyspace"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
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
func (s *besides) fromTable(ctx context.Context, q *mvcc.RangeRequest,
	rev int64) (res *mvcc.RangeResult, ok bool, err error) {
	off, err := keyspace.New(keyspace.Config{Revision: rev})
	if err != nil {
		return nil, false, err
	}
	res, err = read.New(tableAt{s.table, rev}, s.table, off, mvcc.NewTimeout(time.Minute),
		read.MaxSorted).At(rev).Range(ctx, q)
	mark, merr := compact.NewMark(s.table).Read(ctx)
	if merr != nil {
		return nil, false, merr
	}
	return res, rev >= mark, err
}

// tableAt is a node that knows a table at one revision.
type tableAt struct {
	table sqlstore.Store
	rev   int64
}

func (n tableAt) Revision() int64        { return n.rev }
func (n tableAt) CompactRevision() int64 { return -1 }
func (n tableAt) CountRange(bool)        {}

func (n tableAt) ReadRevision(context.Context, auth.Permit, bool) (int64, error) { return n.rev, nil }
func (n tableAt) Mark(ctx context.Context) (int64, error)                        { return compact.NewMark(n.table).Read(ctx) }
func (n tableAt) Await(context.Context, int64) error                             { return nil }

// compare asks a node for q and the table for the same.
func (s *besides) compare(ctx context.Context, b *Replica, q *mvcc.RangeRequest, linearizable,
	stream bool) (*mvcc.RangeResult, error) {
	known := b.CompactRevision()
	ask := b.Reader.Range
	if stream {
		ask = collectStream(b)
	}
	got, err := ask(ctx, auth.System, q, linearizable)
	switch {
	case errors.Is(err, mvcc.ErrCompacted):
		if mark, merr := compact.NewMark(s.table).Read(ctx); merr != nil || max(q.Revision, 1) >= mark && !stream {
			return nil, fmt.Errorf("%+v: %w, but the mark is %d, %v", q, err, mark, merr)
		}
		s.compacted.Add(1)
		return nil, nil
	case errors.Is(err, mvcc.ErrFutureRevision):
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
	if g, w := rangeAnswer(got), rangeAnswer(want); !proto.Equal(g, w) {
		return nil, fmt.Errorf("%+v at revision %d (linearizable %t, stream %t):\n got %s\nwant %s", q, rev, linearizable,
			stream, g, w)
	}
	s.compared.Add(1)
	return got, nil
}

func collectStream(b *Replica) func(context.Context, auth.Permit, *mvcc.RangeRequest, bool) (*mvcc.RangeResult, error) {
	return func(ctx context.Context, as auth.Permit, q *mvcc.RangeRequest, linearizable bool) (*mvcc.RangeResult, error) {
		all := &mvcc.RangeResult{}
		err := b.Reader.RangeStream(ctx, as, q, linearizable, 700, func(chunk *mvcc.RangeResult, last bool) error {
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

func (g questions) keyRange() mvcc.KeyRange {
	switch g.IntN(8) {
	case 0:
		return mvcc.KeyRange{Key: g.key()}
	case 1:
		return mvcc.KeyRange{Key: g.key(), End: g.key()}
	case 2:
		return all()
	case 3:
		return mvcc.KeyRange{Key: g.key(), End: []byte{0}}
	case 4:
		return mvcc.KeyRange{Key: coder.KeyAfter(g.key()), End: []byte("b0")}
	case 5:
		return mvcc.KeyRange{Key: []byte("b/"), End: []byte("b0")}
	default:
		n := g.IntN(3)
		return mvcc.KeyRange{Key: fmt.Appendf(nil, "b/%d/", n), End: fmt.Appendf(nil, "b/%d0", n)}
	}
}

func (g questions) request(b *Replica) *mvcc.RangeRequest {
	q := &mvcc.RangeRequest{KeyRange: g.keyRange(), KeysOnly: g.IntN(5) == 0, CountOnly: g.IntN(6) == 0}
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
		q.SortBy, q.SortOrder = mvcc.SortTarget(g.IntN(5)), mvcc.SortOrder(g.IntN(3))
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

func (g questions) txn() *mvcc.Txn {
	t := &mvcc.Txn{}
	used := make(map[string]bool)
	for range 1 + g.IntN(3) {
		k := g.key()
		if used[string(k)] {
			continue
		}
		used[string(k)] = true
		if g.IntN(3) == 0 {
			t.Then = append(t.Then, mvcc.Op{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: k}}})
		} else {
			t.Then = append(t.Then, mvcc.Op{Put: &mvcc.PutRequest{Key: k, Value: g.value(), PrevKV: g.IntN(2) == 0}})
		}
	}
	if g.IntN(20) == 0 {
		n := g.IntN(3)
		t.Then = []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: fmt.Appendf(nil, "b/%d/1", n),
			End: fmt.Appendf(nil, "b/%d/2", n)}}}}
	}
	return t
}

// read asks node b questions until ctx ends: single ranges, and lists by pages.
func (s *besides) read(ctx context.Context, b *Replica, g questions) error {
	for ctx.Err() == nil {
		q, linearizable := g.request(b), g.IntN(3) == 0
		stream := q.SortOrder == mvcc.SortNone && q.SortBy == mvcc.SortByKey && !q.Filtered() && g.IntN(3) == 0
		res, err := s.compare(ctx, b, q, linearizable, stream)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if g.IntN(3) > 0 || q.Limit == 0 || len(q.End) == 0 || q.SortBy != mvcc.SortByKey ||
			q.SortOrder == mvcc.SortDescend || q.Filtered() {
			continue
		}
		for res != nil && res.More && len(res.Records) > 0 && ctx.Err() == nil {
			page := *q
			if page.Key = coder.KeyAfter(res.Records[len(res.Records)-1].Key); page.Revision <= 0 {
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
			_, err = b.Compact(ctx, auth.System, max(b.Revision()-g.Int64N(60), 1), g.IntN(2) == 0)
		} else {
			_, err = b.Txn(ctx, auth.System, g.txn(), true)
		}
		if err != nil && !errors.Is(err, mvcc.ErrCompacted) && !errors.Is(err, mvcc.ErrNotLeader) &&
			!errors.Is(err, mvcc.ErrLeaderLost) {
			return err
		}
	}
	return nil
}

// follow keeps node b at what the table holds until ctx ends.
func (s *besides) follow(ctx context.Context, b *Replica) error {
	for ctx.Err() == nil {
		rev, err := b.RefreshState(ctx)
		if err == nil {
			b.limit.raise(rev)
			err = b.CatchUp(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// TestRangesFromMemoryEqualTheTable: whatever is asked, of a leader and a follower,
// while keys change, history is compacted and others lead, the answer is the
// table's at that revision. The caches are small, so that they know parts only.
func TestRangesFromMemoryEqualTheTable(t *testing.T) {
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
		c.CountPieceKeys, c.CountChanges = 4, []int{4, 30}[seed%2]
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
		if held := b.view.Stats(); held.RecordBytes+held.SegmentBytes > budget {
			t.Errorf("the budget is %d: %+v", budget, held)
		}
		hits += testutil.ToFloat64(b.metrics.rangeHits)
		misses += testutil.ToFloat64(b.metrics.rangeMisses)
	}
	t.Logf("seed %d, %d bytes: %d answers compared, %d compacted, %.0f from memory, %.0f not", seed, budget,
		s.compared.Load(), s.compacted.Load(), hits, misses)
	if s.compared.Load() == 0 || hits == 0 || misses == 0 {
		t.Error("this tests nothing")
	}
}

// TestCountOvertakenByCompactionIsForgotten: a follower that counted rows of which
// compaction had taken some does not answer with that number later.
func TestCountOvertakenByCompactionIsForgotten(t *testing.T) {
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
	if _, err := leader.Compact(t.Context(), auth.System, 11, true); err != nil {
		t.Fatal(err)
	}
	q := &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k"), End: []byte("l")}, Revision: 6, CountOnly: true}
	for range 2 {
		// What a read finds that began before the node heard of the compaction.
		read := follower.Reader.At(q.Revision)
		if res, err := read.Range(t.Context(), q); err != nil && !errors.Is(err, mvcc.ErrCompacted) || !read.FromTable() {
			t.Fatalf("counted %+v from memory, %v", res, err)
		}
		if res, err := follower.Reader.Range(t.Context(), auth.System, q, false); !errors.Is(err, mvcc.ErrCompacted) {
			t.Fatalf("a count below the compact revision: %+v, %v", res, err)
		}
	}
}

// TestMemoryIsNotUsedBelowCompactRevision: of keys whose tombstones compaction
// removed nothing is left to fill from, so what was filled then says nothing of the
// revisions at which they existed, to a read that began before the node heard of
// the compaction.
func TestMemoryIsNotUsedBelowCompactRevision(t *testing.T) {
	p := newPair(t, newStore(t))
	p.lead(0)
	leader, follower := p.nodes[0], p.nodes[1]
	mustTxn(t, leader, put("k", "1"))
	mustTxn(t, leader, del("k"))
	mustTxn(t, leader, put("z", "1"))
	if err := catchUp(t, follower); err != nil {
		t.Fatal(err)
	}
	if _, err := leader.Compact(t.Context(), auth.System, 4, true); err != nil {
		t.Fatal(err)
	}
	q := &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k"), End: []byte("l")}}
	for rev, known := range map[int64]bool{2: false, 4: true} {
		for range 2 {
			read := follower.Reader.At(4)
			if _, err := read.Range(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		read := follower.Reader.At(rev)
		if res, err := read.Range(t.Context(), q); err != nil || read.FromTable() == known {
			t.Errorf("revision %d: %+v, %v, read from the table is %t", rev, res, err, read.FromTable())
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
				mustTxn(b, n, &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: fmt.Appendf(nil, "/registry/pods/%05d", i),
					Value: value}}}})
			}
			q := &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("/registry/pods/02"), End: []byte("/registry/pods0")},
				Limit: 500}
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
