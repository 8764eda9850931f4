package backend

import (
	"bytes"
	"container/list"
	"sync"
	"time"

	"github.com/google/btree"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sqlbrain/sqlbrain/coder"
)

// rangeCache holds the records of ranges that are read, within a budget of bytes,
// as segments: disjoint pieces of the key space of which every key is known. It is
// coherent because every change passes through set, in order and before the
// frontier moves; what is read from the table meanwhile is brought up to date by
// the changes that its fill noted. A segment knows its content at each revision
// from its floor on, so what lies between the revisions of two pages of a list
// makes no difference, and the lock is held for one segment at a time.
//
// Segments are what is admitted (rangeFill) and given up, by recency.
type rangeCache struct {
	budget       int
	segmentBytes int // size that segments are split at, and bound of each one's history
	largest      int // records larger than that are not kept
	resized      func(used int)

	mu        sync.Mutex
	segments  *btree.BTreeG[*segment] // by start
	pivot     segment                 // to search segments with
	recent    *list.List              // of *segment, the most recently read first
	used      int
	evictions int
	fills     map[*rangeFill]struct{}
	sightings *simplelru.LRU[string, int64] // when ranges that were not known were asked for
	born      time.Time
}

const (
	maxSegmentBytes = 256 << 10
	// idleSegment is how long a segment is safe from ranges that are asked for
	// once only.
	idleSegment      = time.Minute
	rememberedRanges = 4096
)

// newRangeCache returns a cache of that many bytes; none turns it off. resized is
// told how many it uses, with the lock held.
func newRangeCache(budget int, resized func(used int)) (*rangeCache, error) {
	sightings, err := simplelru.NewLRU[string, int64](rememberedRanges, nil)
	if err != nil {
		return nil, err
	}
	return &rangeCache{
		budget: budget, segmentBytes: min(maxSegmentBytes, budget/16), largest: budget / 8, resized: resized,
		segments: newSegmentTree(), recent: list.New(), fills: make(map[*rangeFill]struct{}), sightings: sightings, born: time.Now(),
	}, nil
}

func newSegmentTree() *btree.BTreeG[*segment] {
	return btree.NewG(16, func(a, b *segment) bool { return bytes.Compare(a.start, b.start) < 0 })
}

func (c *rangeCache) now() int64 { return int64(time.Since(c.born)) }

// containing returns the segment that key lies in, nil if it is in none.
func (c *rangeCache) containing(key []byte) (found *segment) {
	c.pivot.start = key
	c.segments.DescendLessOrEqual(&c.pivot, func(s *segment) bool {
		if s.end == nil || bytes.Compare(key, s.end) < 0 {
			found = s
		}
		return false
	})
	return found
}

func (c *rangeCache) touch(s *segment) {
	s.used = c.now()
	c.recent.MoveToFront(s.recency)
}

// get returns key's record at revision rev, nil if there is none; known says
// whether the cache can tell.
func (c *rangeCache) get(key []byte, rev int64, values bool) (rec *coder.Record, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.containing(key)
	if s == nil || !s.readable(rev, values) {
		return nil, false
	}
	c.touch(s)
	return s.get(key, rev), true
}

// read appends to out the records of [from, end) at revision rev that it knows, up
// to the first key it does not know, or until out holds limit (0: no limit). It
// returns where it stopped, nil if that is the end.
func (c *rangeCache) read(out []*coder.Record, from, end []byte, rev int64, values bool, limit int) (_ []*coder.Record, next []byte) {
	for {
		var known bool
		out, next, known = c.readSegment(out, from, end, rev, values, limit)
		switch {
		case !known:
			return out, from
		case limit > 0 && len(out) == limit:
			return out, behind(out[limit-1].Key)
		case next == nil:
			return out, nil
		}
		from = next
	}
}

// behind returns the smallest key greater than key.
func behind(key []byte) []byte { return append(bytes.Clone(key), 0) }

func (c *rangeCache) readSegment(out []*coder.Record, from, end []byte, rev int64, values bool, limit int) (_ []*coder.Record, next []byte, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.containing(from)
	if s == nil || !s.readable(rev, values) {
		return out, nil, false
	}
	c.touch(s)
	out = s.appendTo(out, from, end, rev, limit)
	if before(s.end, end) {
		next = s.end
	}
	return out, next, true
}

// gap returns where the keys that are unknown from from on end: end, or what read
// goes on from before.
func (c *rangeCache) gap(from, end []byte, rev int64, values bool) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pivot.start = from
	c.segments.AscendGreaterOrEqual(&c.pivot, func(s *segment) bool {
		switch {
		case !before(s.start, end):
			return false
		case s.readable(rev, values) && !bytes.Equal(s.start, from):
			end = s.start
			return false
		}
		return true
	})
	return end
}

// count returns how many keys of [from, end) exist at revision rev, if it knows all
// of them.
func (c *rangeCache) count(from, end []byte, rev int64) (n int64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.containing(from)
	if s == nil {
		return 0, false
	}
	next := s.start
	c.segments.AscendGreaterOrEqual(s, func(s *segment) bool {
		if !bytes.Equal(s.start, next) || !s.readable(rev, false) {
			return false
		}
		n += s.count(from, end, rev)
		next = s.end
		known = !before(next, end)
		return !known
	})
	return n, known
}

// set takes in a change: r is the key's new record, which may be a tombstone. It
// returns the record replaced, if it knows it with its value, and whether the new
// one was kept with its value.
func (c *rangeCache) set(r *coder.Record) (old *coder.Record, kept bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for f := range c.fills {
		f.note(r)
	}
	s := c.containing(r.Key)
	if s == nil {
		return nil, false
	}
	size := s.bytes
	old = s.set(r)
	s.forget(c.segmentBytes)
	c.used += s.bytes - size
	for s.bytes-s.history > c.segmentBytes && len(s.items) > 1 {
		size := s.bytes
		second := s.split()
		c.used += s.bytes - size
		c.add(second, c.recent.InsertAfter(second, s.recency))
		s = c.containing(r.Key)
	}
	kept = s.values
	if !s.values {
		old = nil
	}
	if itemSize(r) > c.largest {
		c.remove(s)
		kept = false
	}
	c.shrink()
	return old, kept
}

// add makes s part of the cache, at a place in the order of recency.
func (c *rangeCache) add(s *segment, recency *list.Element) {
	s.recency = recency
	c.segments.ReplaceOrInsert(s)
	c.used += s.bytes
}

func (c *rangeCache) remove(s *segment) {
	c.recent.Remove(s.recency)
	c.segments.Delete(s)
	c.used -= s.bytes
}

// shrink keeps the budget: of the segment not read for longest the history goes
// first, then the rest. A segment whose history does not shrink goes as a whole, so
// each step frees something.
func (c *rangeCache) shrink() {
	for c.used > c.budget && c.recent.Len() > 0 {
		s := c.recent.Back().Value.(*segment)
		if size := s.bytes; s.history > 0 {
			s.trim(s.last)
			c.used += s.bytes - size
			if s.bytes < size {
				continue
			}
		}
		c.remove(s)
		c.evictions++
	}
	c.resized(c.used)
}

// makeRoom makes room for size bytes that were asked for before at seen (0: never),
// if there is enough that was not read since, or not for long.
func (c *rangeCache) makeRoom(size int, seen int64) bool {
	idle := c.now() - int64(idleSegment)
	free := c.budget - c.used
	for e := c.recent.Back(); free < size; e = e.Prev() {
		if e == nil {
			return false
		}
		s := e.Value.(*segment)
		if s.used >= seen && s.used >= idle {
			return false
		}
		free += s.bytes
	}
	for c.budget-c.used < size {
		c.remove(c.recent.Back().Value.(*segment))
		c.evictions++
	}
	return true
}

// purge forgets everything, fills under way included.
func (c *rangeCache) purge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.fills)
	c.segments, c.recent, c.used = newSegmentTree(), list.New(), 0
	c.resized(0)
}

// rangeCacheStats is what the metrics say.
type rangeCacheStats struct{ bytes, segments, evictions int }

func (c *rangeCache) stats() rangeCacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rangeCacheStats{bytes: c.used, segments: c.segments.Len(), evictions: c.evictions}
}
