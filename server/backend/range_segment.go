package backend

import (
	"bytes"
	"container/list"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
)

// segment holds the records of all keys in [start, end): the current ones, and
// those before as far back as floor. It belongs to a rangeCache and is guarded by
// that one's lock.
type segment struct {
	start, end []byte // end nil: every key from start on
	values     bool   // else its records have no values

	// items are in key order. Deleted keys stay as long as revisions before their
	// deletion can be told.
	items []item
	live  int // items that are not deleted

	// floor is the oldest revision at which the content is known; last the newest
	// one that changed it, or floor. They may be ahead of the frontier, and then
	// nobody reads here yet.
	floor, last int64
	// half is a revision in the middle of the history kept: the next floor.
	half int64

	bytes   int // everything
	history int // superseded versions and tombstones

	recency *list.Element
	used    int64 // when it was last read, see rangeCache.now
}

// item is a key's newest record and the versions before it.
type item struct {
	rec   *coder.Record
	older *olderVersion
}

type olderVersion struct {
	rec   *coder.Record
	older *olderVersion
}

// at returns the key's record at revision rev, nil if it did not exist.
func (it *item) at(rev int64) *coder.Record {
	r := it.rec
	for o := it.older; r.ModRevision > rev; o = o.older {
		if o == nil {
			return nil
		}
		r = o.rec
	}
	return liveOrNil(r)
}

const (
	segmentOverhead = 400
	// itemOverhead is about what a record in a segment takes besides key and value.
	itemOverhead = 180
)

func itemSize(r *coder.Record) int { return len(r.Key) + len(r.Value) + itemOverhead }

// newSegment returns a segment of what is known at revision floor.
func newSegment(start, end []byte, values bool, floor int64, items []item) *segment {
	s := &segment{start: start, end: end, values: values, floor: floor, last: floor, items: items}
	s.measure()
	return s
}

// measure makes bytes, history and live agree with the items.
func (s *segment) measure() {
	s.live, s.history, s.bytes = 0, 0, segmentOverhead+len(s.start)+len(s.end)
	for i := range s.items {
		it := &s.items[i]
		s.bytes += itemSize(it.rec)
		if it.rec.Tombstone {
			s.history += itemSize(it.rec)
		} else {
			s.live++
		}
		for o := it.older; o != nil; o = o.older {
			s.bytes += itemSize(o.rec)
			s.history += itemSize(o.rec)
		}
	}
}

// find returns the position of key, or the one it would have.
func (s *segment) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(s.items, key, func(it item, key []byte) int { return bytes.Compare(it.rec.Key, key) })
}

// bounds returns the positions of the items from key from on and before end.
func (s *segment) bounds(from, end []byte) (lo, hi int) {
	hi = len(s.items)
	if bytes.Compare(from, s.start) > 0 {
		lo, _ = s.find(from)
	}
	if before(end, s.end) {
		hi, _ = s.find(end)
	}
	return lo, hi
}

// readable reports whether the content at revision rev is known, in that detail.
func (s *segment) readable(rev int64, values bool) bool {
	return s.floor <= rev && (s.values || !values)
}

// get returns key's record at revision rev, nil if there is none.
func (s *segment) get(key []byte, rev int64) *coder.Record {
	if i, ok := s.find(key); ok {
		return s.items[i].at(rev)
	}
	return nil
}

// plain reports whether at revision rev the content is the newest record of each
// item.
func (s *segment) plain(rev int64) bool { return s.last <= rev && s.live == len(s.items) }

// appendTo appends the records of [from, end) at revision rev to out. It stops when
// there are limit of them, if limit is not 0.
func (s *segment) appendTo(out []*coder.Record, from, end []byte, rev int64, limit int) []*coder.Record {
	lo, hi := s.bounds(from, end)
	plain := s.plain(rev)
	for i := lo; i < hi && (limit == 0 || len(out) < limit); i++ {
		if plain {
			out = append(out, s.items[i].rec)
		} else if r := s.items[i].at(rev); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// count returns how many keys of [from, end) exist at revision rev.
func (s *segment) count(from, end []byte, rev int64) (n int64) {
	lo, hi := s.bounds(from, end)
	switch {
	case s.plain(rev):
		return int64(hi - lo)
	case s.last <= rev && hi-lo == len(s.items):
		return int64(s.live)
	}
	for i := lo; i < hi; i++ {
		if s.items[i].at(rev) != nil {
			n++
		}
	}
	return n
}

// set takes in a change and returns the record that it replaced. Changes come in
// order, but what was read from the table may have been ahead of them.
func (s *segment) set(r *coder.Record) (old *coder.Record) {
	if !s.values && r.Value != nil {
		bare := *r
		bare.Value = nil
		r = &bare
	}
	i, known := s.find(r.Key)
	switch {
	case !known && r.Tombstone:
		return nil // the table knew already
	case !known:
		s.items = slices.Insert(s.items, i, item{rec: r})
		s.live++
		s.bytes += itemSize(r)
	default:
		it := &s.items[i]
		old = it.rec
		if r.ModRevision < old.ModRevision || r.ModRevision == old.ModRevision && r.Sub <= old.Sub {
			return nil // the same
		}
		it.rec = r
		it.older = &olderVersion{rec: old, older: it.older}
		s.bytes += itemSize(r)
		if !old.Tombstone {
			s.live--
			s.history += itemSize(old)
		}
		if r.Tombstone {
			s.history += itemSize(r)
		} else {
			s.live++
		}
	}
	s.last = max(s.last, r.ModRevision)
	return old
}

// forget bounds the history to most bytes. It goes by halves, so that a revision
// can be read for some time after it was current, however busy the segment is.
func (s *segment) forget(most int) {
	if s.history >= most/2 && s.half <= s.floor {
		s.half = s.last
	}
	if s.history <= most {
		return
	}
	if s.trim(s.half); s.history > most/4*3 {
		s.trim(s.last)
	}
}

// trim gives up what was before revision floor.
func (s *segment) trim(floor int64) {
	floor = max(floor, s.floor)
	s.floor, s.last = floor, max(floor, s.last)
	kept := s.items[:0]
	for _, it := range s.items {
		if it.rec.ModRevision <= floor {
			if it.older = nil; it.rec.Tombstone {
				continue
			}
		}
		for o := it.older; o != nil; o = o.older {
			if o.rec.ModRevision <= floor {
				o.older = nil
			}
		}
		kept = append(kept, it)
	}
	clear(s.items[len(kept):])
	s.items = kept
	s.measure()
}

// split returns the second half of a segment of several items, which it leaves.
func (s *segment) split() *segment {
	at, size := 0, 0
	for size < s.bytes/2 && at < len(s.items)-1 {
		size += itemSize(s.items[at].rec)
		for o := s.items[at].older; o != nil; o = o.older {
			size += itemSize(o.rec)
		}
		at++
	}
	second := newSegment(s.items[at].rec.Key, s.end, s.values, s.floor, slices.Clone(s.items[at:]))
	second.last, second.half, second.used = s.last, s.half, s.used
	s.items, s.end = slices.Clone(s.items[:at]), second.start
	s.measure()
	return second
}

// before reports whether the end a of a range lies before the end b; nil is behind
// every key.
func before(a, b []byte) bool {
	switch {
	case a == nil:
		return false
	case b == nil:
		return true
	default:
		return bytes.Compare(a, b) < 0
	}
}
