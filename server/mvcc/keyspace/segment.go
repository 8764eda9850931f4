package keyspace

import (
	"bytes"
	"container/list"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
)

// Detail is what is known of the keys of a segment.
type Detail int8

// The levels of detail. Each includes those before it.
const (
	Counts Detail = iota // how many there are
	Keys                 // every key with its metadata
	Values               // and with its value
)

// segment is what is known of the keys of a span: the current records, and those before
// them back to the revision floor. A segment with the detail Counts, a counted span, has nothing
// but live. Segments belong to a View and are guarded by its lock.
type segment struct {
	span   coder.Span
	detail Detail

	live int // keys that exist
	// items are in key order. Deleted keys stay as long as a revision before their
	// deletion can be read.
	items []item

	// floor is the oldest revision at which the content is known, last the newest one that
	// changed it, or floor. Both may be ahead of the visible revision: nothing reads there yet.
	floor, last int64
	// half is a revision in the middle of the history: the next floor.
	half int64

	bytes   int // everything
	history int // replaced versions and tombstones

	recency *list.Element
	used    int64 // when it was last read, see View.now
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
	if r.Tombstone {
		return nil
	}
	return r
}

const (
	segmentOverhead = 400
	itemOverhead    = 180
)

// Size returns about how many bytes r takes in a segment.
func Size(r *coder.Record) int { return len(r.Key) + len(r.Value) + itemOverhead }

// newSegment returns a segment with the content of revision floor.
func newSegment(span coder.Span, detail Detail, floor int64, items []item) *segment {
	s := &segment{span: span, detail: detail, floor: floor, last: floor, items: items}
	s.measure()
	return s
}

// measure computes bytes, history and live from the items.
func (s *segment) measure() {
	s.live, s.history, s.bytes = 0, 0, segmentOverhead+len(s.span.Start)+len(s.span.End)
	for i := range s.items {
		it := &s.items[i]
		s.bytes += Size(it.rec)
		if it.rec.Tombstone {
			s.history += Size(it.rec)
		} else {
			s.live++
		}
		for o := it.older; o != nil; o = o.older {
			s.bytes += Size(o.rec)
			s.history += Size(o.rec)
		}
	}
}

// find returns the position of key, or the one it would have.
func (s *segment) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(s.items, key, func(it item, key []byte) int { return bytes.Compare(it.rec.Key, key) })
}

// bounds returns the positions of the items of span.
func (s *segment) bounds(span coder.Span) (lo, hi int) {
	hi = len(s.items)
	if bytes.Compare(span.Start, s.span.Start) > 0 {
		lo, _ = s.find(span.Start)
	}
	if coder.EndBefore(span.End, s.span.End) {
		hi, _ = s.find(span.End)
	}
	return lo, max(lo, hi) // a client may ask for a range that ends before it starts
}

// readable reports whether the content at revision rev is known in that detail.
func (s *segment) readable(rev int64, detail Detail) bool {
	return s.floor <= rev && s.detail >= detail
}

// get returns key's record at revision rev, nil if there is none.
func (s *segment) get(key []byte, rev int64) *coder.Record {
	if i, ok := s.find(key); ok {
		return s.items[i].at(rev)
	}
	return nil
}

// plain reports whether the content at revision rev is the newest record of each item.
func (s *segment) plain(rev int64) bool { return s.last <= rev && s.live == len(s.items) }

// appendTo appends the records of span at revision rev to out, until out has limit of
// them, which it has not yet.
func (s *segment) appendTo(out []*coder.Record, span coder.Span, rev int64, limit int) []*coder.Record {
	lo, hi := s.bounds(span)
	out = slices.Grow(out, min(hi-lo, limit-len(out)))
	plain := s.plain(rev)
	for i := lo; i < hi && len(out) < limit; i++ {
		if plain {
			out = append(out, s.items[i].rec)
		} else if r := s.items[i].at(rev); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// count returns how many keys of span exist at revision rev.
func (s *segment) count(span coder.Span, rev int64) (n int64) {
	lo, hi := s.bounds(span)
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

// set adds a change and returns the record that it replaced. Changes come in order, but
// what was read from the table may be ahead of them.
func (s *segment) set(r *coder.Record) (old *coder.Record) {
	if s.detail < Values && r.Value != nil {
		bare := *r
		bare.Value = nil
		r = &bare
	}
	i, known := s.find(r.Key)
	switch {
	case !known && r.Tombstone:
		return nil // the table was ahead
	case !known:
		s.items = slices.Insert(s.items, i, item{rec: r})
		s.live++
		s.bytes += Size(r)
	default:
		it := &s.items[i]
		old = it.rec
		if r.ModRevision < old.ModRevision || r.ModRevision == old.ModRevision && r.Sub <= old.Sub {
			return nil // the table was ahead
		}
		it.rec = r
		it.older = &olderVersion{rec: old, older: it.older}
		s.bytes += Size(r)
		if !old.Tombstone {
			s.live--
			s.history += Size(old)
		}
		if r.Tombstone {
			s.history += Size(r)
		} else {
			s.live++
		}
	}
	s.last = max(s.last, r.ModRevision)
	return old
}

// forget bounds the history to most bytes. It drops about half at a time, so that a
// revision stays readable for some time however often the segment changes.
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

// trim drops what only revisions before floor need.
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

// split moves the second half of a segment of several items to a new one, which it returns.
func (s *segment) split() *segment {
	at, size := 0, 0
	for size < s.bytes/2 && at < len(s.items)-1 {
		size += Size(s.items[at].rec)
		for o := s.items[at].older; o != nil; o = o.older {
			size += Size(o.rec)
		}
		at++
	}
	second := newSegment(coder.Span{Start: s.items[at].rec.Key, End: s.span.End}, s.detail, s.floor,
		slices.Clone(s.items[at:]))
	second.last, second.half, second.used = s.last, s.half, s.used
	s.items, s.span.End = slices.Clone(s.items[:at]), second.span.Start
	s.measure()
	return second
}
