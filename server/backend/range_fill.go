package backend

import (
	"bytes"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// rangeFill is a range that somebody reads from the table in one snapshot. It notes
// the changes that are shown from before the snapshot on: those, and the newest
// versions that the snapshot held, are together the newest state.
type rangeFill struct {
	cache      *rangeCache
	start, end []byte // end nil: every key from start on
	values     bool
	seen       int64 // when the range was asked for before, 0 if it was not
	changes    []*coder.Record
}

const (
	// maxFills bounds the fills under way, each of which every change looks at.
	maxFills = 32
	// maxFillChanges bounds the changes noted, in case the database is slow.
	maxFillChanges = 4096
)

// fill announces that the caller reads [start, end) from the table; nil if it would
// be in vain. It ends with keep or drop.
func (c *rangeCache) fill(start, end []byte, values bool) *rangeFill {
	if c.budget <= 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.containing(start); s != nil && (s.values || !values) {
		return nil // it is there, but does not reach back far enough
	}
	seen, _ := c.sightings.Get(string(start))
	c.sightings.Add(string(start), c.now())
	if len(c.fills) >= maxFills {
		return nil
	}
	f := &rangeFill{cache: c, start: start, end: end, values: values, seen: seen}
	c.fills[f] = struct{}{}
	return f
}

// note is told of every change, under the cache's lock.
func (f *rangeFill) note(r *coder.Record) {
	if bytes.Compare(r.Key, f.start) < 0 || f.end != nil && bytes.Compare(r.Key, f.end) >= 0 {
		return
	}
	if len(f.changes) == maxFillChanges {
		delete(f.cache.fills, f) // keep finds it void
		return
	}
	f.changes = append(f.changes, r)
}

// drop ends a fill that keeps nothing.
func (f *rangeFill) drop() {
	if f == nil {
		return
	}
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	delete(f.cache.fills, f)
}

// keep ends the fill: the snapshot reached up to upTo (nil: to the fill's end) and
// items are the newest records of the keys it held, tombstones left out. No version
// in the snapshot, tombstones included, was newer than floor, and nothing that a
// read at floor needs had been compacted.
func (f *rangeFill) keep(upTo []byte, items []item, floor int64) {
	c := f.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.fills[f]; !ok {
		return // too much happened meanwhile
	}
	delete(c.fills, f)
	if upTo == nil {
		upTo = f.end
	}
	known := newSegment(f.start, upTo, f.values, floor, items)
	for _, r := range f.changes {
		if upTo == nil || bytes.Compare(r.Key, upTo) < 0 {
			known.set(r)
		}
	}
	for _, gap := range c.gaps(f.start, upTo, f.values) {
		c.addPieces(known, gap.Start, gap.End, f.seen)
	}
	c.shrink()
}

// gaps returns the parts of [start, end) that no segment covers. With values,
// segments without them are removed before.
func (c *rangeCache) gaps(start, end []byte, values bool) (gaps []sqlstore.Partition) {
	var found []*segment
	c.pivot.start = start
	if s := c.containing(start); s != nil {
		c.pivot.start = s.start
	}
	c.segments.AscendGreaterOrEqual(&c.pivot, func(s *segment) bool {
		if !before(s.start, end) {
			return false
		}
		found = append(found, s)
		return true
	})
	for _, s := range found {
		if values && !s.values {
			c.remove(s)
			continue
		}
		if before(start, s.start) {
			gaps = append(gaps, sqlstore.Partition{Start: start, End: s.start})
		}
		if start = s.end; start == nil {
			return gaps
		}
	}
	if before(start, end) {
		gaps = append(gaps, sqlstore.Partition{Start: start, End: end})
	}
	return gaps
}

// addPieces adds the part [start, end) of known, of which nothing is in the cache,
// as segments, those that there is room for.
func (c *rangeCache) addPieces(known *segment, start, end []byte, seen int64) {
	lo, hi := known.bounds(start, end)
	items, size := known.items[lo:hi], 0
	first := 0
	piece := func(upTo []byte, last int) {
		if !before(start, upTo) {
			return
		}
		s := newSegment(start, upTo, known.values, known.floor, slices.Clone(items[first:last]))
		s.last, s.used = known.last, c.now()
		if c.makeRoom(s.bytes, seen) {
			c.add(s, c.recent.PushFront(s))
		}
	}
	for i := range items {
		rec := items[i].rec
		n := itemSize(rec)
		switch {
		case n > c.largest:
			piece(rec.Key, i)
			start, first, size = behind(rec.Key), i+1, 0
			continue
		case size+n > c.segmentBytes && i > first:
			piece(rec.Key, i)
			start, first, size = rec.Key, i, 0
		}
		size += n
	}
	piece(end, len(items))
}
