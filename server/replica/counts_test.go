package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// keepsCounts makes a replica store the counts of few keys.
func keepsCounts(c *Config) {
	c.RecordCache, c.CountSpanKeys, c.countsKeys = 0, 4, 1
}

func countsRow(t *testing.T, store sqlstore.Store) []byte {
	t.Helper()
	row, err := store.Get(t.Context(), coder.CountsKey())
	if err != nil && !errors.Is(err, sqlstore.ErrKeyNotFound) {
		t.Fatal(err)
	}
	return row
}

func storeCounts(t *testing.T, b *Replica) {
	t.Helper()
	if err := b.leading.Load().counts.keep(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}

// countOf counts a range in the present, or at a revision.
func countOf(key, end string, rev int64) *mvcc.RangeRequest {
	return &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte(key), End: []byte(end)}, Revision: rev, CountOnly: true}
}

// storedCounts is a random history whose counts are those of every state.
type storedCounts struct {
	t         *testing.T
	r         *rand.Rand
	store     *countLog
	b         *Replica
	states    [][]string // the keys at each revision, sorted
	compacted int64
	rows      [][]byte // that the counts row had
	recalled  int      // starts after which the first count read no row
}

func (s *storedCounts) rev() int64 { return int64(len(s.states) - 1) }

func (s *storedCounts) key() string { return fmt.Sprintf("k%03d", s.r.IntN(200)) }

func (s *storedCounts) open() {
	s.b = open(s.t, s.store, func(c *Config) {
		keepsCounts(c)
		c.CountSpanKeys, c.CountChanges, c.Exclusive = 2+s.r.IntN(6), 1+s.r.IntN(40), s.r.IntN(4) > 0
	})
}

// write changes several keys at one revision.
func (s *storedCounts) write() {
	keys := slices.Clone(s.states[s.rev()])
	txn, used := &mvcc.Txn{}, map[string]bool{}
	for range 1 + s.r.IntN(5) {
		key := s.key()
		if used[key] {
			continue
		}
		used[key] = true
		at, found := slices.BinarySearch(keys, key)
		switch {
		case !found:
			keys = slices.Insert(keys, at, key)
			txn.Then = append(txn.Then, put(key, "").Then...)
		case s.r.IntN(2) == 0:
			keys = slices.Delete(keys, at, at+1)
			txn.Then = append(txn.Then, del(key).Then...)
		default:
			txn.Then = append(txn.Then, put(key, "again").Then...)
		}
	}
	if got := mustTxn(s.t, s.b, txn).Revision; got != s.rev()+1 {
		s.t.Fatalf("the transaction after revision %d got %d", s.rev(), got)
	}
	s.states = append(s.states, keys)
}

// count compares the count of a range.
func (s *storedCounts) count(from, to string, rev int64) {
	s.t.Helper()
	want := int64(0)
	for _, key := range s.states[rev] {
		if key >= from && key < to {
			want++
		}
	}
	if got := mustRange(s.t, s.b, countOf(from, to, rev)).Count; got != want {
		s.t.Fatalf("[%s, %s) has %d keys at revision %d of %d (compacted %d), counted %d", from, to, want, rev, s.rev(),
			s.compacted, got)
	}
}

// restart replaces the leader: by a stop, by a failover without one, or by a stop whose
// counts row is lost, so that an older one is there.
func (s *storedCounts) restart() {
	before := s.b
	switch s.r.IntN(3) {
	case 0:
		closeReplica(s.t, before)
		s.open()
	case 1:
		s.open()
		closeReplica(s.t, before)
	default:
		closeReplica(s.t, before)
		if len(s.rows) > 0 {
			putRow(s.t, s.store, coder.CountsKey(), s.rows[s.r.IntN(len(s.rows))])
		}
		s.open()
	}
	if s.r.IntN(4) > 0 {
		s.store.reset()
		s.count("k", "l", s.rev())
		if rows, _ := s.store.reset(); rows == 0 && len(s.states[s.rev()]) > 20 {
			s.recalled++
		}
	}
}

func (s *storedCounts) step() {
	switch n := s.r.IntN(40); {
	case n < 24:
		s.write()
	case n < 33:
		from, to, oldest := s.key(), s.key(), max(s.compacted, 1)
		if s.r.IntN(3) == 0 {
			from, to = "k", "l"
		}
		s.count(from, to, oldest+s.r.Int64N(s.rev()-oldest+1))
	case n < 36:
		storeCounts(s.t, s.b)
		if row := countsRow(s.t, s.store); row != nil {
			s.rows = append(s.rows, row)
		}
	case n < 38:
		if rev := s.rev() - s.r.Int64N(10); rev > s.compacted && rev > 1 {
			if _, err := s.b.Compact(s.t.Context(), auth.System, rev, s.r.IntN(2) == 0); err != nil {
				s.t.Fatal(err)
			}
			s.compacted = rev
		}
	default:
		s.restart()
	}
}

// TestStoredCountsMatchTable: whatever happened since the counts row was written, which may be
// one of long ago, every count is that of the table.
func TestStoredCountsMatchTable(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := &storedCounts{t: t, r: rand.New(rand.NewPCG(seed, 1)), store: &countLog{Store: newStore(t)},
				states: make([][]string, 2), compacted: -1}
			s.open()
			for range 400 {
				s.step()
			}
			if s.recalled == 0 {
				t.Error("no start took up stored counts")
			}
		})
	}
}

// filled returns a store with keys k000 to k099, whose counts row is of the revision returned.
func filled(t *testing.T) (s *countLog, stored int64) {
	t.Helper()
	s = &countLog{Store: newStore(t)}
	b := open(t, s, keepsCounts)
	for i := range 100 {
		mustTxn(t, b, put(fmt.Sprintf("k%03d", i), ""))
	}
	mustRange(t, b, countOf("k", "l", 0))
	closeReplica(t, b)
	counts, err := coder.DecodeCounts(countsRow(t, s))
	if err != nil || counts.Keys() != 100 {
		t.Fatalf("the counts row has %+v, %v", counts, err)
	}
	s.reset()
	return s, counts.Revision
}

// TestFirstCountReadsNoRow: neither of a leader, nor of a follower, nor of the leader after it.
func TestFirstCountReadsNoRow(t *testing.T) {
	s, _ := filled(t)
	p := newPair(t, s, keepsCounts)
	p.lead(0)
	mustTxn(t, p.nodes[0], put("k0005", ""))
	mustCatchUp(t, p.nodes[1])
	for i, b := range p.nodes {
		if res := mustRange(t, b, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k"), End: []byte("l")},
			Limit: 1}); res.Count != 101 {
			t.Errorf("node %d counted %d keys", i, res.Count)
		}
	}
	if rows, counts := s.reset(); rows > 0 {
		t.Errorf("%d rows were counted in %d statements", rows, counts)
	}
	p.mustResign(0)
	p.lead(1)
	if res := mustRange(t, p.nodes[1], countOf("k", "l", 0)); res.Count != 101 {
		t.Errorf("the next leader counted %d keys", res.Count)
	}
	if rows, counts := s.reset(); rows > 0 {
		t.Errorf("the next leader counted %d rows in %d statements", rows, counts)
	}
}

// TestLargeTableHasStoredCounts: the default configuration stores them for a table that takes long to count.
func TestLargeTableHasStoredCounts(t *testing.T) {
	s := &countLog{Store: newStore(t)}
	b := open(t, s, nil)
	for i := range 51 {
		txn := &mvcc.Txn{}
		for j := range 1000 {
			txn.Then = append(txn.Then, put(fmt.Sprintf("k%05d", 1000*i+j), "").Then...)
		}
		mustTxn(t, b, txn)
	}
	mustRange(t, b, countOf("k", "l", 0))
	closeReplica(t, b)
	s.reset()
	b = open(t, s, nil)
	if res := mustRange(t, b, countOf("k", "l", 0)); res.Count != 51_000 {
		t.Errorf("counted %d keys", res.Count)
	}
	if rows, counts := s.reset(); rows > 0 {
		t.Errorf("%d rows were counted in %d statements", rows, counts)
	}
}

// TestUselessCountsAreNotTaken: a row that cannot be read. TestStoredCountsMatchTable has those whose log is compacted.
func TestUselessCountsAreNotTaken(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, s sqlstore.Store, row []byte){
		"damaged": func(t *testing.T, s sqlstore.Store, row []byte) {
			row[len(row)/2] ^= 1
			putRow(t, s, coder.CountsKey(), row)
		},
		"newer format": func(t *testing.T, s sqlstore.Store, row []byte) {
			row[0] = 2
			putRow(t, s, coder.CountsKey(), row)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := filled(t)
			spoil(t, s, countsRow(t, s))
			b := open(t, s, keepsCounts)
			s.reset()
			if res := mustRange(t, b, countOf("k", "l", 0)); res.Count != 100 {
				t.Errorf("counted %d keys", res.Count)
			}
			if rows, _ := s.reset(); rows != 100 {
				t.Errorf("%d rows were counted", rows)
			}
		})
	}
}

// TestCountsAreStoredAfterCompaction: otherwise the log would not reach back to the row's
// revision. Before, and without changes, the row stays as it is.
func TestCountsAreStoredAfterCompaction(t *testing.T) {
	s, stored := filled(t)
	b := open(t, s, keepsCounts)
	k := b.leading.Load().counts
	keep := func() int64 {
		t.Helper()
		if err := k.keep(t.Context(), countsRevisions); err != nil {
			t.Fatal(err)
		}
		counts, err := coder.DecodeCounts(countsRow(t, s))
		if err != nil {
			t.Fatal(err)
		}
		return counts.Revision
	}
	mustTxn(t, b, put("k000", "again"))
	last := mustTxn(t, b, put("k000", "again")).Revision
	if got := keep(); got != stored {
		t.Errorf("the row is of revision %d, not %d", got, stored)
	}
	mustCompact(t, b, last, false)
	if got := keep(); got != last {
		t.Errorf("after compaction, the row is of revision %d, not %d", got, last)
	}
}

// TestDeposedLeaderStoresNoCounts: what it would store may be of revisions that the table
// has lost.
func TestDeposedLeaderStoresNoCounts(t *testing.T) {
	s := newStore(t)
	first := open(t, s, func(c *Config) { keepsCounts(c); sharedStore(c) })
	for i := range 20 {
		mustTxn(t, first, put(fmt.Sprintf("k%03d", i), ""))
	}
	mustRange(t, first, countOf("k", "l", 0))
	k := first.leading.Load().counts
	open(t, s, func(c *Config) { keepsCounts(c); sharedStore(c) })
	if err := k.keep(t.Context(), 1); err == nil {
		t.Error("the deposed leader stored its counts")
	}
	if row := countsRow(t, s); row != nil {
		t.Errorf("the table has the counts %x", row)
	}
}

// TestRecoveredTableHasNoCounts: the row may be of revisions that were lost, which others replace.
func TestRecoveredTableHasNoCounts(t *testing.T) {
	s, _ := filled(t)
	recoverTable(t, s, 1000, false)
	if row := countsRow(t, s); row != nil {
		t.Errorf("the table has the counts %x", row)
	}
}

// A handover is bounded, also while the row is being written and the database does not answer.
func TestKeepingCountsEndsWithItsContext(t *testing.T) {
	k := &countsKeeper{turn: make(chan struct{}, 1)}
	k.turn <- struct{}{} // another call waits for the database
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.keep(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
