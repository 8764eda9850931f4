package keyspace

import (
	"bytes"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
)

// Fill is a span, or a single key, that its caller reads from the table in one snapshot
// after Begin or BeginKey. The newest versions in the snapshot, and the changes applied
// since the fill began, are together the newest state. It ends with Keep, KeepKey or Drop.
// A nil Fill keeps nothing.
type Fill struct {
	view   *View
	span   coder.Span
	detail Detail
	seen   int64 // when the range was requested before, 0 if it was not
	epoch  int
	from   int // position in the changes of the view
}

const (
	// maxFillChanges and maxFillBytes bound the changes that are kept while fills are under
	// way, in case the database is slow. maxFillBytes, or a quarter of the budget if that is
	// more.
	maxFillChanges = 16_384
	maxFillBytes   = 1 << 20
)

// Begin announces that the caller reads span from the table, with values or only the keys. It
// returns nil if what is read would not be kept.
func (v *View) Begin(span coder.Span, values bool) *Fill {
	detail := detailOf(values)
	if v.cfg.Budget <= 0 {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.contents.covering(span.Start); s != nil && s.detail >= detail {
		return nil // it is known, but not at the caller's revision
	}
	name := string(span.Start)
	seen, _ := v.requested.Get(name)
	v.requested.Add(name, v.now())
	return v.begin(&Fill{view: v, span: span, detail: detail, seen: seen})
}

// BeginKey announces that the caller reads the current record of key from the table.
func (v *View) BeginKey(key []byte) *Fill {
	if v.cfg.Budget <= 0 {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.begin(&Fill{view: v, span: coder.Span{Start: key}})
}

func (v *View) begin(f *Fill) *Fill {
	v.fills++
	f.epoch, f.from = v.epoch, len(v.changes)
	return f
}

// recordChange keeps a change for the fills under way.
func (v *View) recordChange(r *coder.Record) {
	if v.fills == 0 {
		return
	}
	v.changes = append(v.changes, r)
	if v.changeBytes += Size(r); len(v.changes) > maxFillChanges || v.changeBytes > max(maxFillBytes, v.cfg.Budget/4) {
		v.voidFills()
	}
}

// voidFills makes the fills under way keep nothing.
func (v *View) voidFills() {
	v.epoch++
	v.fills, v.changes, v.changeBytes = 0, nil, 0
}

// end ends the fill and returns the changes since it began. ok is false if it is void.
func (f *Fill) end() (changes []*coder.Record, ok bool) {
	v := f.view
	if f.epoch != v.epoch {
		return nil, false
	}
	changes = v.changes[f.from:]
	if v.fills--; v.fills == 0 {
		v.changes, v.changeBytes = nil, 0
	}
	return changes, true
}

// Drop ends a fill that keeps nothing.
func (f *Fill) Drop() {
	if f == nil {
		return
	}
	f.view.mu.Lock()
	defer f.view.mu.Unlock()
	f.end()
}

// Values reports whether the fill keeps values.
func (f *Fill) Values() bool { return f.detail == Values }

// KeepKey ends a fill of BeginKey. r is the key's newest record, nil if there is none.
func (f *Fill) KeepKey(r *coder.Record) {
	if f == nil {
		return
	}
	v := f.view
	v.mu.Lock()
	defer v.mu.Unlock()
	changes, ok := f.end()
	if !ok || r == nil || v.records[string(r.Key)] != nil {
		return
	}
	if slices.ContainsFunc(changes, func(c *coder.Record) bool { return bytes.Equal(c.Key, r.Key) }) {
		return // Apply kept what there is to keep
	}
	v.addRecord(r)
	v.shrink()
}

// Keep ends a fill of Begin. The snapshot reached up to upTo; nil is the end of the span.
// records are the newest ones of the keys it held, without tombstones. No version in it,
// tombstones included, was newer than floor, and nothing that a read at floor needs had
// been compacted.
func (f *Fill) Keep(upTo []byte, records []*coder.Record, floor int64) {
	if f == nil {
		return
	}
	v := f.view
	v.mu.Lock()
	defer v.mu.Unlock()
	changes, ok := f.end()
	if !ok {
		return
	}
	span := f.span
	if upTo != nil {
		span.End = upTo
	}
	items := make([]item, len(records))
	for i, r := range records {
		items[i].rec = r
	}
	known := newSegment(span, f.detail, floor, items)
	for _, r := range changes {
		if span.Contains(r.Key) {
			known.set(r)
		}
	}
	for _, gap := range v.gaps(span, f.detail) {
		v.admitPart(known, gap, f.seen)
	}
	v.shrink()
}

// gaps returns the parts of span that no segment knows. It removes segments of less detail.
func (v *View) gaps(span coder.Span, detail Detail) (gaps []coder.Span) {
	start := span.Start
	for _, s := range slices.Collect(v.contents.overlapping(span)) {
		if s.detail < detail {
			v.removeSegment(s)
			continue
		}
		if coder.EndBefore(start, s.span.Start) {
			gaps = append(gaps, coder.Span{Start: start, End: s.span.Start})
		}
		if start = s.span.End; start == nil {
			return gaps
		}
	}
	if rest := (coder.Span{Start: start, End: span.End}); !rest.Empty() {
		gaps = append(gaps, rest)
	}
	return gaps
}

// admitPart adds the part of known in span, of which nothing is known yet, as segments: those
// that are admitted.
func (v *View) admitPart(known *segment, span coder.Span, seen int64) {
	lo, hi := known.bounds(span)
	items, start := known.items[lo:hi], span.Start
	first, size := 0, 0
	admit := func(end []byte, last int) {
		if part := (coder.Span{Start: start, End: end}); !part.Empty() {
			s := newSegment(part, known.detail, known.floor, slices.Clone(items[first:last]))
			s.last = known.last
			v.admit(s, seen)
		}
	}
	for i := range items {
		rec := items[i].rec
		n := Size(rec)
		switch {
		case n > v.largest: // left out: a gap of one key
			admit(rec.Key, i)
			start, first, size = coder.KeyAfter(rec.Key), i+1, 0
			continue
		case size+n > v.segmentBytes && i > first:
			admit(rec.Key, i)
			start, first, size = rec.Key, i, 0
		}
		size += n
	}
	admit(span.End, len(items))
}

// admit adds s, whose range was requested before at seen (0: never), if there is free space,
// or enough that was not read since seen, or not for idleSegment.
func (v *View) admit(s *segment, seen int64) {
	idle := v.now() - int64(idleSegment)
	free := v.share() - v.used
	for e := v.recent.Back(); free < s.bytes; e = e.Prev() {
		if e == nil {
			return
		}
		old := e.Value.(*segment)
		if old.used >= seen && old.used >= idle {
			return
		}
		free += old.bytes
	}
	for v.share()-v.used < s.bytes {
		v.evict(v.recent.Back().Value.(*segment))
	}
	s.used = v.now()
	v.addSegment(s, v.recent.PushFront(s))
}
