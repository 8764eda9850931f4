package keyspace

import (
	"bytes"
	"iter"

	"github.com/google/btree"

	"github.com/sqlbrain/sqlbrain/coder"
)

// tree holds disjoint segments in the order of their keys. Not safe for concurrent use.
type tree struct {
	segments *btree.BTreeG[*segment]
	pivot    segment // to search with
}

func newTree() *tree {
	return &tree{segments: btree.NewG(16, func(a, b *segment) bool {
		return bytes.Compare(a.span.Start, b.span.Start) < 0
	})}
}

// covering returns the segment that key lies in, nil if there is none.
func (t *tree) covering(key []byte) (found *segment) {
	t.pivot.span.Start = key
	t.segments.DescendLessOrEqual(&t.pivot, func(s *segment) bool {
		if coder.EndBefore(key, s.span.End) {
			found = s
		}
		return false
	})
	return found
}

// ending returns the segment that ends at key, nil if there is none.
func (t *tree) ending(key []byte) (found *segment) {
	t.pivot.span.Start = key
	t.segments.DescendLessOrEqual(&t.pivot, func(s *segment) bool {
		if bytes.Equal(s.span.Start, key) {
			return true
		}
		if s.span.End != nil && bytes.Equal(s.span.End, key) {
			found = s
		}
		return false
	})
	return found
}

// overlapping ranges over the segments that have keys of span in common with it, in key
// order. The loop must not use the tree.
func (t *tree) overlapping(span coder.Span) iter.Seq[*segment] {
	return func(yield func(*segment) bool) {
		start := span.Start
		if s := t.covering(start); s != nil {
			start = s.span.Start
		}
		t.pivot.span.Start = start
		t.segments.AscendGreaterOrEqual(&t.pivot, func(s *segment) bool {
			return coder.EndBefore(s.span.Start, span.End) && yield(s)
		})
	}
}
