package keyspace

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/watch"
)

// countChange is a key that was created (net 1) or deleted (-1).
type countChange struct {
	rev int64
	key []byte
	net int64
}

// A counted span that has grown to more than maxGrowth times its size is dropped when a part of it
// has to be counted, which finds several counted spans. Until then its number is of use. Counted spans with
// less than a maxGrowth-th of their size join their neighbors.
const maxGrowth = 4

// Remember keeps that span has n keys at revision rev, found out since Purges was purges. A client that lists by
// pages asks for the count of what follows each page, which is the count before less the page.
func (v *View) Remember(span coder.Span, rev, n, purges int64) {
	key := memoKey(span, rev)
	v.mu.Lock()
	defer v.mu.Unlock()
	if purges == v.purges.Load() {
		v.memo.Add(key, n)
	}
}

func memoKey(span coder.Span, rev int64) string {
	var short [128]byte // longer keys take one more allocation
	b := binary.BigEndian.AppendUint64(short[:0], uint64(rev))
	b = binary.AppendUvarint(b, uint64(len(span.Start)))
	b = append(b, span.Start...)
	if span.End == nil {
		return string(append(b, 0)) // no other end sorts before every key
	}
	return string(append(b, span.End...))
}

// SpanKeys returns how many keys a counted span has when it is counted.
func (v *View) SpanKeys() int { return v.cfg.SpanKeys }

// applyCount adds a change to the counted spans.
func (v *View) applyCount(e *watch.Event) {
	d := countChange{rev: e.Record.ModRevision, key: e.Record.Key}
	switch {
	case e.Type == watch.Delete:
		d.net = -1
	case e.PrevRevision == 0:
		d.net = 1
	default:
		return
	}
	if len(v.countChanges) >= 2*v.cfg.CountChanges {
		gone := len(v.countChanges) - v.cfg.CountChanges
		v.low = v.countChanges[gone-1].rev
		v.countChanges = append(make([]countChange, 0, 2*v.cfg.CountChanges), v.countChanges[gone:]...)
	}
	v.countChanges = append(v.countChanges, d)
	p := v.counted.covering(d.key)
	if p == nil {
		return
	}
	if p.live += int(d.net); d.net < 0 && p.live < v.cfg.SpanKeys/maxGrowth {
		v.join(p)
	}
}

// join merges p with its neighbors unless the result were too large. Otherwise counted spans whose
// keys were all deleted would accumulate.
func (v *View) join(p *segment) {
	most := 2 * v.cfg.SpanKeys
	if prev := v.counted.ending(p.span.Start); prev != nil && prev.live+p.live <= most {
		prev.live += p.live
		prev.span.End = p.span.End
		v.counted.segments.Delete(p)
		p = prev
	}
	if p.span.End == nil {
		return
	}
	if next := v.counted.covering(p.span.End); next != nil && next.live+p.live <= most {
		p.live += next.live
		p.span.End = next.span.End
		v.counted.segments.Delete(next)
	}
}

// since returns by how many keys span grew after revision rev.
func (v *View) since(rev int64, span coder.Span) (net int64) {
	if span.Empty() {
		return 0
	}
	for _, d := range v.changesAfter(rev) {
		if span.Contains(d.key) {
			net += d.net
		}
	}
	return net
}

// changesAfter returns the changes after revision rev. They may be read without the lock.
func (v *View) changesAfter(rev int64) []countChange {
	first, _ := slices.BinarySearchFunc(v.countChanges, rev+1,
		func(d countChange, rev int64) int { return cmp.Compare(d.rev, rev) })
	return v.countChanges[first:]
}

// Remainder is what a Count left to be counted: keys that no whole counted span counts.
type Remainder struct {
	coder.Span
	Within  bool // they are a part of a counted span that is not too large
	Follows bool // a counted span ends where they start
}

// countSpans adds up the counted spans at the beginning of span, as Count does.
func (v *View) countSpans(span coder.Span, rev int64) (n int64, _ *Remainder, ok bool) {
	if rev < v.low {
		return 0, nil, false
	}
	at, rest := span.Start, &Remainder{Span: span}
	for p := range v.counted.overlapping(span) {
		if coder.EndBefore(at, p.span.Start) { // a gap
			rest.End = p.span.Start
			break
		}
		if coder.EndBefore(p.span.Start, at) || coder.EndBefore(span.End, p.span.End) { // a part of p
			if rest.Within = p.live <= maxGrowth*v.cfg.SpanKeys; !rest.Within {
				defer v.counted.segments.Delete(p)
			}
			if coder.EndBefore(p.span.End, span.End) {
				rest.End = p.span.End
			}
			break
		}
		n += int64(p.live)
		if at = p.span.End; !coder.EndBefore(at, span.End) {
			return n - v.since(rev, span), nil, true
		}
	}
	rest.Start = at
	rest.Follows = v.counted.ending(at) != nil
	return n - v.since(rev, coder.Span{Start: span.Start, End: at}), rest, true
}

// AddCounts adds the counted spans of c of which no part is known, and keeps their bounds. It returns
// false if the revision of c is too old.
func (v *View) AddCounts(c coder.Counts) bool {
	added := newTree()
	for i := range c.Spans {
		p := &c.Spans[i]
		added.segments.ReplaceOrInsert(&segment{span: p.Span, detail: Counts, live: int(p.Keys)})
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if c.Revision < v.low {
		return false
	}
	for _, d := range v.changesAfter(c.Revision) {
		if p := added.covering(d.key); p != nil {
			p.live += int(d.net)
		}
	}
	added.segments.Ascend(func(p *segment) bool {
		for range v.counted.overlapping(p.span) {
			return true
		}
		v.counted.segments.ReplaceOrInsert(p)
		if p.live < v.cfg.SpanKeys/2 {
			v.join(p)
		}
		return true
	})
	return true
}

// Counts returns all counted spans as they were at revision rev. It returns false if that is too old.
// The caller must not change their bounds.
func (v *View) Counts(rev int64) (c coder.Counts, ok bool) {
	v.mu.Lock()
	if ok = rev >= v.low; !ok {
		v.mu.Unlock()
		return c, false
	}
	c = coder.Counts{Revision: rev, Spans: make([]coder.CountedSpan, 0, v.counted.segments.Len())}
	v.counted.segments.Ascend(func(p *segment) bool {
		c.Spans = append(c.Spans, coder.CountedSpan{Span: p.span, Keys: int64(p.live)})
		return true
	})
	after := v.changesAfter(rev)
	v.mu.Unlock()
	for _, d := range after {
		c.Add(d.key, -d.net)
	}
	return c, true
}
