package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
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
	defer s.pause()
	return s.Store.List(ctx, q)
}

func (s *slow) Lookup(ctx context.Context, keys [][]byte, maxBytes int) ([]sqlstore.ListRow, bool, error) {
	defer s.pause()
	return s.Store.Lookup(ctx, keys, maxBytes)
}

func (s *slow) pause() {
	s.mu.Lock()
	d := time.Duration(s.rand.IntN(3)*s.rand.IntN(400)) * time.Microsecond
	s.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}

// shared is a reference that a writer and readers use. Its state may lag behind the nodes.
type shared struct {
	mu sync.Mutex
	reference
}

// readAgainst asks node b for random ranges until ctx ends, and compares the answers with what etcd has at their
// revisions. It returns how many it has compared.
func (m *shared) readAgainst(ctx context.Context, b *Replica, r *rand.Rand) (compared int, err error) {
	g := &generator{Rand: r, m: m.reference}
	for ctx.Err() == nil {
		m.mu.Lock()
		q := g.rangeRequest()
		m.mu.Unlock()
		got, err := b.Reader.Range(ctx, auth.System, q, r.IntN(3) == 0)
		if errors.Is(err, mvcc.ErrCompacted) || errors.Is(err, mvcc.ErrFutureRevision) && q.Revision > b.Revision()-100 {
			continue // since it was chosen, or a follower is behind
		}
		if err != nil {
			if ctx.Err() == nil {
				return compared, fmt.Errorf("%+v: %w", q, err)
			}
			return compared, nil
		}
		m.mu.Lock()
		for m.Revision() < got.Revision && ctx.Err() == nil { // its writer has not applied that yet
			m.mu.Unlock()
			runtime.Gosched()
			m.mu.Lock()
		}
		x := m.Execute(rangeMessage(q), got.Revision)
		m.mu.Unlock()
		if x.Err != nil {
			continue // it was compacted since
		}
		if answer := rangeAnswer(got); !proto.Equal(answer, x.Answer) {
			return compared, fmt.Errorf("%+v:\n got %s\nwant %s", q, answer, x.Answer)
		}
		compared++
	}
	return compared, nil
}

// write changes keys and compacts at b, which leads.
func (m *shared) write(t *testing.T, b *Replica, g *generator) {
	if g.IntN(40) > 0 {
		txn := g.txn(0) // only this goroutine changes the reference
		result := mustTxn(t, b, txn)
		m.mu.Lock()
		defer m.mu.Unlock()
		if want := m.txn(t, txn); !proto.Equal(txnAnswer(result, header(result.Revision)), want) {
			t.Errorf("%+v: got %+v, want %v", txn, result, want)
		}
		return
	}
	if rev := m.Revision() - g.Int64N(60); rev > max(m.Compacted, 0) {
		if _, err := b.Compact(t.Context(), auth.System, rev, g.IntN(2) == 0); err != nil {
			t.Error(err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.Compacted = rev
	}
}

// TestConcurrentReadsMatchTheModel: whatever is asked, of a leader and a follower, while keys change, history is
// compacted and others lead, the answer is that of its revision. The caches are small, so that they know parts only.
func TestConcurrentReadsMatchTheModel(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			budget := []int{2000, 6000, 20_000, 4 << 20}[r.IntN(4)]
			p := newPair(t, &slow{Store: newStore(t), rand: rand.New(rand.NewPCG(seed, 4))}, func(c *Config) {
				c.RecordCache = budget
				c.CountSpanKeys, c.CountChanges = 4, []int{4, 30}[seed%2]
			})
			m := &shared{reference: newReference()}
			var readers sync.WaitGroup
			var compared atomic.Int64
			reading, stop := context.WithCancel(t.Context())
			for i := range uint64(4) {
				readers.Go(func() {
					n, err := m.readAgainst(reading, p.nodes[i%2], rand.New(rand.NewPCG(seed, 100+i)))
					if err != nil {
						t.Error(err)
					}
					compared.Add(int64(n))
				})
			}
			g := &generator{Rand: r, m: m.reference}
			for leader := range p.nodes {
				p.lead(leader)
				following, enough := context.WithCancel(t.Context())
				var follower sync.WaitGroup
				follower.Go(func() {
					for following.Err() == nil {
						if err := catchUp(t, p.nodes[1-leader]); err != nil {
							t.Error(err)
							return
						}
					}
				})
				for range 300 {
					m.write(t, p.nodes[leader], g)
				}
				enough()
				follower.Wait()
				if err := p.resign(leader); err != nil {
					t.Error(err)
				}
			}
			stop()
			readers.Wait()
			hits, misses := 0.0, 0.0
			for _, b := range p.nodes {
				if held := b.view.Stats(); held.RecordBytes+held.SegmentBytes > budget {
					t.Errorf("the budget is %d: %+v", budget, held)
				}
				hits += testutil.ToFloat64(b.metrics.rangeHits)
				misses += testutil.ToFloat64(b.metrics.rangeMisses)
			}
			t.Logf("%d answers compared, %.0f from memory, %.0f not", compared.Load(), hits, misses)
			if compared.Load() == 0 || hits == 0 || misses == 0 {
				t.Error("this tests nothing")
			}
		})
	}
}

// TestCountOvertakenByCompactionIsForgotten: a follower that counted rows of which
// compaction had taken some does not answer with that number later.
func TestCountOvertakenByCompactionIsForgotten(t *testing.T) {
	_, leader, follower := newLedPair(t, newStore(t))
	for i := range 5 {
		mustTxn(t, leader, put(fmt.Sprint("k", i), "1"))
	}
	for i := range 5 {
		mustTxn(t, leader, del(fmt.Sprint("k", i)))
	}
	mustCatchUp(t, follower)
	mustCompact(t, leader, 11, true)
	q := &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k"), End: []byte("l")}, Revision: 6, CountOnly: true}
	for range 2 {
		// What a read finds that began before the node heard of the compaction.
		reading := follower.Reader.At(q.Revision)
		if res, err := reading.Range(t.Context(), q); err != nil && !errors.Is(err, mvcc.ErrCompacted) ||
			!reading.FromTable() {
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
	_, leader, follower := newLedPair(t, newStore(t))
	mustTxn(t, leader, put("k", "1"))
	mustTxn(t, leader, del("k"))
	mustTxn(t, leader, put("z", "1"))
	mustCatchUp(t, follower)
	mustCompact(t, leader, 4, true)
	q := &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k"), End: []byte("l")}}
	for rev, known := range map[int64]bool{2: false, 4: true} {
		for range 2 {
			reading := follower.Reader.At(4)
			if _, err := reading.Range(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		reading := follower.Reader.At(rev)
		if res, err := reading.Range(t.Context(), q); err != nil || reading.FromTable() == known {
			t.Errorf("revision %d: %+v, %v, read from the table is %t", rev, res, err, reading.FromTable())
		}
	}
}
