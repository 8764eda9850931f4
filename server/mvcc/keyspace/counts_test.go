package keyspace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/btree"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/watch"
)

// countHistory is every state of a key space.
type countHistory []*btree.BTreeG[string]

func (h countHistory) count(rev int64, span coder.Span) (n int64) {
	h[rev].AscendGreaterOrEqual(string(span.Start), func(k string) bool {
		if !span.Contains([]byte(k)) {
			return false
		}
		n++
		return true
	})
	return n
}

// change returns the next state, in which key k was created, changed or deleted.
func (h countHistory) change(r *rand.Rand, k []byte) (next *btree.BTreeG[string], e *watch.Event) {
	rev := int64(len(h))
	next = h[rev-1].Clone()
	e = &watch.Event{Record: &coder.Record{Key: k, ModRevision: rev}}
	if !next.Has(string(k)) {
		next.ReplaceOrInsert(string(k))
		return next, e
	}
	if e.PrevRevision = rev - 1; r.IntN(2) == 0 {
		next.Delete(string(k))
		e.Type = watch.Delete
	}
	return next, e
}

// TestCountsMatchModel: keys come and go, pieces are added at revisions old and new, and
// every count, and every piece, is what the key space had at that revision.
func TestCountsMatchModel(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		v := newView(t, Config{PieceKeys: 1 + r.IntN(8), Deltas: 1 + r.IntN(30)})
		h := countHistory{btree.NewG(8, func(a, b string) bool { return a < b })}
		key := func() []byte { return fmt.Appendf(nil, "%03d", r.IntN(300)) }
		span := func() coder.Span {
			start, end := key(), key()
			if r.IntN(6) == 0 {
				return coder.Span{Start: start}
			}
			if bytes.Compare(start, end) > 0 {
				start, end = end, start
			}
			return coder.Span{Start: start, End: append(end, '0')}
		}
		counted, whole := 0, 0
		for range 4000 {
			rev := int64(len(h) - 1)
			at := max(rev-r.Int64N(40), 0)
			switch n := r.IntN(10); {
			case n < 5:
				next, e := h.change(r, key())
				h = append(h, next)
				v.Apply([]*watch.Event{e})
			case n < 6:
				c, ok := v.Counts(at)
				if ok != (at >= v.low) {
					t.Fatalf("seed %d: counts at %d are %t, reach %t", seed, at, ok, (at >= v.low))
				}
				for _, p := range c.Pieces {
					if want := h.count(at, p.Span); p.Keys != want {
						t.Fatalf("seed %d: [%q, %q) had %d keys at %d of %d, not %d", seed, p.Start, p.End, want, at, rev, p.Keys)
					}
				}
				if ok && r.IntN(2) == 0 {
					v.pieces = newTree() // as after a start
					if !v.AddCounts(c) || len(c.Pieces) > 0 && v.Stats().Pieces == 0 {
						t.Fatalf("seed %d: %+v were not added", seed, c)
					}
				}
			case n < 8:
				s := span()
				v.AddCounts(coder.Counts{Revision: at, Pieces: []coder.Piece{{Span: s, Keys: h.count(at, s)}}})
			default:
				for left := span(); !left.Empty(); {
					n, rest, ok := v.Count(left, at)
					if ok != (at >= v.low) {
						t.Fatalf("seed %d: count at %d is %t, reaches %t", seed, at, ok, (at >= v.low))
					}
					if !ok {
						break
					}
					known := left
					if rest != nil {
						known.End = rest.Start
					}
					if want := h.count(at, known); n != want {
						t.Fatalf("seed %d: [%q, %q) has %d keys at %d of %d, not %d", seed, known.Start, known.End, want, at, rev, n)
					}
					if counted++; rest == nil {
						whole++
						break
					}
					if rest.Empty() || coder.EndBefore(left.End, rest.End) {
						t.Fatalf("seed %d: of [%q, %q) the part [%q, %q) is unknown", seed, left.Start, left.End, rest.Start, rest.End)
					}
					if rest.End == nil {
						break
					}
					left.Start = rest.End
				}
			}
			v.check(t)
		}
		if whole == 0 || whole == counted {
			t.Errorf("seed %d: %d of %d counts were whole", seed, whole, counted)
		}
	}
}

// TestGrownPieceCountsTheWholeOnly: of a piece that has become too large a part is not read,
// but counted again in several pieces.
func TestGrownPieceCountsTheWholeOnly(t *testing.T) {
	v := newView(t, Config{PieceKeys: 2})
	whole := coder.Span{Start: []byte("0"), End: []byte("1")}
	v.AddCounts(coder.Counts{Pieces: []coder.Piece{{Span: whole}}})
	for i := range 100 {
		v.put(&coder.Record{Key: fmt.Appendf(nil, "0%02d", i), ModRevision: int64(i + 1)})
	}
	if n, rest, ok := v.Count(whole, 100); n != 100 || rest != nil || !ok {
		t.Fatalf("%d keys, %v, %t", n, rest, ok)
	}
	part := coder.Span{Start: []byte("050"), End: []byte("2")}
	n, rest, ok := v.Count(part, 100)
	if n != 0 || rest == nil || rest.Within || string(rest.Start) != "050" || string(rest.End) != "1" || !ok {
		t.Fatalf("%d keys, %+v, %t", n, rest, ok)
	}
	if v.AddCounts(coder.Counts{Revision: 100,
		Pieces: []coder.Piece{{Span: rest.Span, Keys: 50}}}); v.Stats().Pieces != 1 {
		t.Error("the part was not kept")
	}
	v.check(t)
}
