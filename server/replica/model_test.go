package replica

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// model is etcd's key space kept the plain way: every version of every key.
type model struct {
	rev, compacted int64
	versions       map[string][]*coder.Record // ascending
}

func newModel() *model {
	return &model{rev: 1, compacted: -1, versions: make(map[string][]*coder.Record)}
}

func (m *model) at(key string, rev int64) *coder.Record {
	var found *coder.Record
	for _, v := range m.versions[key] {
		if v.ModRevision <= rev {
			found = v
		}
	}
	if found == nil || found.Tombstone {
		return nil
	}
	return found
}

func (m *model) list(kr mvcc.KeyRange, rev int64) []*coder.Record {
	var keys []string
	for k := range m.versions {
		if coder.Contains(kr.Key, kr.End, []byte(k)) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	var out []*coder.Record
	for _, k := range keys {
		if r := m.at(k, rev); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// scratch is a transaction on the model.
type scratch struct {
	*model
	wrote bool
}

func (s *scratch) now() int64 {
	if s.wrote {
		return s.rev + 1
	}
	return s.rev
}

func (s *scratch) txn(t *mvcc.Txn) *mvcc.TxnResult {
	decided := make(map[*mvcc.Txn]bool)
	s.decide(t, decided)
	return s.run(t, decided)
}

func (s *scratch) decide(t *mvcc.Txn, decided map[*mvcc.Txn]bool) {
	ok := true
	for i := range t.Compares {
		c := &t.Compares[i]
		recs := s.list(c.KeyRange, s.rev)
		if len(recs) == 0 && (c.Target == mvcc.CompareValue || !c.Matches(&coder.Record{})) {
			ok = false
		}
		for _, r := range recs {
			ok = ok && c.Matches(r)
		}
	}
	decided[t] = ok
	for _, op := range branch(t, ok) {
		if op.Txn != nil {
			s.decide(op.Txn, decided)
		}
	}
}

func branch(t *mvcc.Txn, ok bool) []mvcc.Op {
	if ok {
		return t.Then
	}
	return t.Else
}

func (s *scratch) run(t *mvcc.Txn, decided map[*mvcc.Txn]bool) *mvcc.TxnResult {
	res := &mvcc.TxnResult{Succeeded: decided[t]}
	for _, op := range branch(t, decided[t]) {
		var r mvcc.OpResult
		switch {
		case op.Range != nil:
			r.Range = s.rangeOp(op.Range)
		case op.Put != nil:
			r.Put = s.put(op.Put)
		case op.Delete != nil:
			recs := s.list(op.Delete.KeyRange, s.now())
			for _, rec := range recs {
				s.write(&coder.Record{Key: rec.Key, Tombstone: true})
			}
			r.Delete = &mvcc.DeleteResult{Deleted: int64(len(recs)), Revision: s.now()}
			if op.Delete.PrevKV {
				r.Delete.Prev = recs
			}
		case op.Txn != nil:
			r.Txn = s.run(op.Txn, decided)
		}
		res.Results = append(res.Results, r)
	}
	return res
}

func (s *scratch) write(r *coder.Record) {
	s.wrote = true
	r.ModRevision = s.rev + 1
	s.versions[string(r.Key)] = append(s.versions[string(r.Key)], r)
}

func (s *scratch) put(p *mvcc.PutRequest) *mvcc.PutResult {
	prev := s.at(string(p.Key), s.now())
	r := &coder.Record{Key: p.Key, Value: p.Value, Lease: p.Lease, CreateRevision: s.rev + 1, Version: 1}
	if prev != nil {
		r.CreateRevision, r.Version = prev.CreateRevision, prev.Version+1
		if p.IgnoreValue {
			r.Value = prev.Value
		}
		if p.IgnoreLease {
			r.Lease = prev.Lease
		}
	}
	s.write(r)
	res := &mvcc.PutResult{Revision: s.now()}
	if p.PrevKV {
		res.Prev = prev
	}
	return res
}

func (s *scratch) rangeOp(q *mvcc.RangeRequest) *mvcc.RangeResult {
	rev := s.now()
	if q.Revision > 0 {
		rev = q.Revision
	}
	recs := s.list(q.KeyRange, rev)
	res := &mvcc.RangeResult{Revision: s.now(), Count: int64(len(recs))}
	if q.CountOnly {
		return res
	}
	filters := q.MinModRevision != 0 || q.MaxModRevision != 0 || q.MinCreateRevision != 0 || q.MaxCreateRevision != 0
	if !filters && q.SortOrder == mvcc.SortNone && q.Limit > 0 {
		recs = recs[:min(int64(len(recs)), q.Limit+1)] // in key order still
	}
	recs = slices.DeleteFunc(recs, func(r *coder.Record) bool {
		return q.MinModRevision != 0 && r.ModRevision < q.MinModRevision || q.MaxModRevision != 0 &&
			r.ModRevision > q.MaxModRevision ||
			q.MinCreateRevision != 0 && r.CreateRevision < q.MinCreateRevision || q.MaxCreateRevision != 0 &&
			r.CreateRevision > q.MaxCreateRevision
	})
	if q.SortOrder != mvcc.SortNone || q.SortBy != mvcc.SortByKey {
		slices.SortFunc(recs, func(a, b *coder.Record) int {
			if q.SortOrder == mvcc.SortDescend {
				a, b = b, a
			}
			return q.SortBy.Compare(a, b)
		})
	}
	if q.Limit > 0 && int64(len(recs)) > q.Limit {
		recs, res.More = recs[:q.Limit], true
	}
	for _, r := range recs {
		c := *r
		if q.KeysOnly {
			c.Value = nil
			if q.SortBy != mvcc.SortByValue {
				c.Lease = 0
			}
		}
		res.Records = append(res.Records, &c)
	}
	return res
}

func (s *scratch) commit() {
	if s.wrote {
		s.rev++
	}
}

// describe renders results for comparison.
func describe(r any) string {
	var sb strings.Builder
	switch r := r.(type) {
	case *mvcc.TxnResult:
		fmt.Fprintf(&sb, "ok=%v[", r.Succeeded)
		for _, o := range r.Results {
			switch {
			case o.Range != nil:
				sb.WriteString(describe(o.Range))
			case o.Put != nil:
				fmt.Fprintf(&sb, "put@%d prev=%s", o.Put.Revision, describe(o.Put.Prev))
			case o.Delete != nil:
				fmt.Fprintf(&sb, "del %d @%d prev=", o.Delete.Deleted, o.Delete.Revision)
				for _, p := range o.Delete.Prev {
					sb.WriteString(describe(p))
				}
			case o.Txn != nil:
				sb.WriteString(describe(o.Txn))
			}
			sb.WriteString("; ")
		}
		sb.WriteString("]")
	case *mvcc.RangeResult:
		fmt.Fprintf(&sb, "range@%d count=%d more=%v", r.Revision, r.Count, r.More)
		for _, rec := range r.Records {
			sb.WriteString(describe(rec))
		}
	case *coder.Record:
		if r == nil {
			return "nil"
		}
		fmt.Fprintf(&sb, "{%q=%q c%d m%d v%d l%d}", r.Key, r.Value, r.CreateRevision, r.ModRevision, r.Version, r.Lease)
	}
	return sb.String()
}

// generator makes random requests over few keys, so that they meet.
type generator struct {
	*rand.Rand
	m *model
}

var modelKeys = []string{"a", "a\x00", "a$", "a%", "b", "b/1", "b/2", "b/20", "b0", "\x00", "\xff", "z"}

func (g *generator) key() []byte { return []byte(modelKeys[g.IntN(len(modelKeys))]) }

func (g *generator) keyRange() mvcc.KeyRange {
	switch g.IntN(6) {
	case 0, 1, 2:
		return mvcc.KeyRange{Key: g.key()}
	case 3:
		return mvcc.KeyRange{Key: g.key(), End: []byte{0}}
	case 4:
		return mvcc.KeyRange{Key: []byte("b/"), End: []byte("b0")}
	default:
		return mvcc.KeyRange{Key: g.key(), End: g.key()} // may be inverted
	}
}

func (g *generator) revision() int64 {
	if g.IntN(2) == 0 {
		return 0
	}
	lowest := max(g.m.compacted, 1)
	return lowest + g.Int64N(g.m.rev-lowest+1)
}

func (g *generator) rangeRequest() *mvcc.RangeRequest {
	q := &mvcc.RangeRequest{KeyRange: g.keyRange(), Revision: g.revision(), Limit: int64(g.IntN(4)),
		KeysOnly: g.IntN(4) == 0, CountOnly: g.IntN(6) == 0}
	if g.IntN(2) == 0 {
		q.SortBy, q.SortOrder = mvcc.SortTarget(g.IntN(5)), mvcc.SortOrder(g.IntN(3))
	}
	if g.IntN(4) == 0 {
		q.MinModRevision, q.MaxModRevision = g.Int64N(g.m.rev+1), g.Int64N(g.m.rev+1)
		q.MinCreateRevision, q.MaxCreateRevision = g.Int64N(g.m.rev/2+1), g.Int64N(g.m.rev+1)
	}
	return q
}

// txn makes a transaction whose puts do not meet other writes, as the front checks.
func (g *generator) txn(depth int) *mvcc.Txn {
	t := &mvcc.Txn{}
	for range g.IntN(3) {
		c := mvcc.Compare{KeyRange: g.keyRange(), Target: mvcc.CompareTarget(g.IntN(5)),
			Result: mvcc.CompareResult(g.IntN(4)), Int: g.Int64N(4), Value: []byte{byte('0' + g.IntN(3))}}
		if g.IntN(2) == 0 {
			c.Int = g.Int64N(g.m.rev + 1)
		}
		t.Compares = append(t.Compares, c)
	}
	t.Then, t.Else = g.ops(depth), g.ops(depth)
	return t
}

func (g *generator) ops(depth int) []mvcc.Op {
	var ops []mvcc.Op
	used := make(map[string]bool)
	for range g.IntN(4) {
		switch n := g.IntN(8); {
		case n < 3:
			k := g.key()
			meets := slices.ContainsFunc(ops, func(op mvcc.Op) bool {
				return op.Delete != nil && coder.Contains(op.Delete.Key, op.Delete.End, k)
			})
			if !meets && !used[string(k)] {
				used[string(k)] = true
				ops = append(ops, mvcc.Op{Put: &mvcc.PutRequest{Key: k, Value: []byte{byte('0' + g.IntN(3))},
					PrevKV: g.IntN(2) == 0}})
			}
		case n < 5:
			ops = append(ops, mvcc.Op{Range: g.rangeRequest()})
		case n < 7:
			kr := g.keyRange()
			meets := slices.ContainsFunc(ops, func(op mvcc.Op) bool {
				return op.Put != nil && coder.Contains(kr.Key, kr.End, op.Put.Key)
			})
			if !meets {
				ops = append(ops, mvcc.Op{Delete: &mvcc.DeleteRequest{KeyRange: kr, PrevKV: g.IntN(2) == 0}})
			}
		case depth > 0:
			ops = append(ops, mvcc.Op{Txn: &mvcc.Txn{Compares: g.txn(0).Compares, Then: []mvcc.Op{{Range: g.rangeRequest()}},
				Else: []mvcc.Op{{Range: g.rangeRequest()}}}})
		}
	}
	return ops
}

// creation returns a transaction that puts a key if it does not exist, perhaps among
// other operations.
func (g *generator) creation() *mvcc.Txn {
	txn := create(string(g.key()), "c")
	txn.Else = g.ops(0)
	if g.IntN(2) == 0 {
		txn.Then = append([]mvcc.Op{{Range: g.rangeRequest()}}, txn.Then[0], mvcc.Op{Range: g.rangeRequest()})
	}
	return txn
}

func TestRandomHistoriesMatchTheModel(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runHistory(t, newStore(t), seed, 250) })
	}
}

// TestRandomBatchesMatchTheModel: transactions that are evaluated and committed
// together answer as if they came one after the other.
func TestRandomBatchesMatchTheModel(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := newModel()
			g := &generator{Rand: rand.New(rand.NewPCG(seed, 2)), m: m}
			l := idle(t)
			for step := range 60 {
				var commands []write.Command
				var txns []*mvcc.Txn
				for range 1 + g.IntN(6) {
					txn := g.creation()
					if g.IntN(2) == 0 {
						txn = g.txn(1)
					}
					txns, commands = append(txns, txn), append(commands, write.NewTxnCommand(txn))
				}
				if g.IntN(2) == 0 {
					l.pipeline.Forget(g.IntN(4) == 0)
				}
				for i, err := range runTogether(t, l, commands...) {
					if err != nil {
						t.Fatalf("step %d, transaction %d: %v", step, i, err)
					}
					s := &scratch{model: m}
					want := s.txn(txns[i])
					s.commit()
					got := commands[i].(*write.TxnCommand).Result()
					if describe(got) != describe(want) || got.Revision != m.rev {
						t.Fatalf("step %d, transaction %d %+v at revision %d:\n got %s @%d\nwant %s @%d", step, i, txns[i], m.rev,
							describe(got), got.Revision, describe(want), m.rev)
					}
				}
			}
		})
	}
}

func runHistory(t *testing.T, store sqlstore.Store, seed uint64, steps int) {
	m := newModel()
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), m: m}
	change := func(c *Config) {
		c.Write.IndexCache = 1 + g.IntN(8) // evictions are part of the game
		if c.RecordCache = []int{0, 2000, 8000, 1 << 20}[g.IntN(4)]; g.IntN(2) == 0 {
			c.RecordCache = 0
		}
		c.CountPieceKeys, c.CountChanges = 1+g.IntN(4), 1+g.IntN(20)
	}
	b := open(t, store, change)
	for step := range steps {
		switch n := g.IntN(20); {
		case n < 12:
			txn := g.txn(1)
			if n < 4 {
				txn = g.creation()
			}
			s := &scratch{model: m}
			want := s.txn(txn)
			s.commit()
			got := mustTxn(t, b, txn)
			if describe(got) != describe(want) || got.Revision != m.rev {
				t.Fatalf("step %d, transaction %+v at revision %d:\n got %s @%d\nwant %s @%d", step, txn, m.rev, describe(got),
					got.Revision, describe(want), m.rev)
			}
		case n < 17:
			q := g.rangeRequest()
			want := (&scratch{model: m}).rangeOp(q)
			if got := mustRange(t, b, q); describe(got) != describe(want) {
				t.Fatalf("step %d, range %+v:\n got %s\nwant %s", step, q, describe(got), describe(want))
			}
		case n < 18:
			rev := g.Int64N(m.rev + 3)
			_, err := b.Compact(t.Context(), auth.System, rev, g.IntN(2) == 0)
			switch {
			case rev <= m.compacted:
				if !errors.Is(err, mvcc.ErrCompacted) {
					t.Fatalf("step %d, compact %d at %d: %v", step, rev, m.compacted, err)
				}
			case rev > m.rev:
				if !errors.Is(err, mvcc.ErrFutureRevision) {
					t.Fatalf("step %d, compact %d at revision %d: %v", step, rev, m.rev, err)
				}
			case err != nil:
				t.Fatal(err)
			default:
				m.compacted = rev
			}
		case n < 19:
			if m.compacted > 1 {
				_, err := b.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all(), Revision: m.compacted - 1}, true)
				if !errors.Is(err, mvcc.ErrCompacted) {
					t.Fatalf("step %d, reading below the compact revision: %v", step, err)
				}
			}
			_, err := b.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: all(), Revision: m.rev + 1}, true)
			if !errors.Is(err, mvcc.ErrFutureRevision) {
				t.Fatalf("step %d, reading the future: %v", step, err)
			}
		default:
			closeReplica(t, b)
			b = open(t, store, change)
		}
	}
	for rev := max(m.compacted, 1); rev <= m.rev; rev++ {
		want := (&scratch{model: m}).rangeOp(&mvcc.RangeRequest{KeyRange: all(), Revision: rev})
		if got := mustRange(t, b, &mvcc.RangeRequest{KeyRange: all(), Revision: rev}); describe(got) != describe(want) {
			t.Fatalf("at the end, everything at revision %d:\n got %s\nwant %s", rev, describe(got), describe(want))
		}
	}
	checkTable(t, b, store, m)
	if n := testutil.ToFloat64(b.metrics.fence.InDoubt); n != 0 {
		t.Errorf("%v commits on a healthy store were in doubt", n)
	}
}

// checkTable compacts to the end and counts what is left: nothing but what reads
// at the compact revision, and watches from it, need.
func checkTable(t *testing.T, b *Replica, store sqlstore.Store, m *model) {
	t.Helper()
	mustTxn(t, b, put("last", "x"))
	last := mustTxn(t, b, put("last", "y")).Revision
	if _, err := b.Compact(t.Context(), auth.System, last, true); err != nil {
		t.Fatal(err)
	}
	live := len((&scratch{model: m}).list(all(), m.rev))
	if m.at("last", m.rev) == nil {
		live++
	}
	count := func(lo, hi []byte) (n int) {
		for _, err := range store.Iter(t.Context(), sqlstore.Range{Start: lo, End: hi}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	lo, hi := coder.IndexBounds([]byte{0}, []byte{0})
	if n := count(lo[:4], hi); n != live {
		t.Errorf("%d index rows are left, %d keys live", n, live)
	}
	lo, hi = coder.VersionBounds([]byte{0}, []byte{0})
	if n := count(lo[:4], hi); n != live {
		t.Errorf("%d version rows are left, %d keys live", n, live)
	}
	lo, hi = coder.LogBounds(0, last)
	if n := count(lo, hi); n != 1 {
		t.Errorf("%d log rows are left, want that of the compact revision", n)
	}
}

func TestKeysOnlyDoesNotChangeStoredValue(t *testing.T) {
	b := open(t, newStore(t), nil)
	mustTxn(t, b, put("k", "value"))
	r := mustRange(t, b, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k")}, KeysOnly: true})
	if r.Records[0].Value != nil {
		t.Fatalf("keys_only returned a value")
	}
	r = mustRange(t, b, &mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte("k")}})
	if !bytes.Equal(r.Records[0].Value, []byte("value")) {
		t.Fatalf("stripping one answer changed the stored value to %q", r.Records[0].Value)
	}
}
