package keyspace

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Config configures a View.
type Config struct {
	Budget   int   // bytes of segments and records; 0 keeps counts only
	Revision int64 // the visible revision
	SpanKeys int   // keys of a counted span when it is counted; 0 is 2,048
	// CountChanges is how many creations and deletions are kept at least, at most twice as many,
	// for counts at older revisions; 0 is 4,096. They take some hundred bytes each.
	CountChanges int
}

// View is the part of the key space that is in memory. Its methods may be called from any
// goroutine, except Apply.
type View struct {
	cfg          Config
	segmentBytes int // size that segments are split at, and bound of the history of each
	largest      int // larger records are not kept in segments
	born         time.Time

	purges atomic.Int64 // changes with mu held

	mu sync.Mutex

	contents  *tree      // segments with keys or values
	recent    *list.List // of *segment, the most recently read first
	used      int        // bytes of contents
	evictions int
	requested *simplelru.LRU[string, int64] // when ranges that were unknown were requested

	records       map[string]*list.Element // of *coder.Record: the current ones of keys read or written singly
	recentRecords *list.List               // the most recently read first
	recordBytes   int

	memo         *simplelru.LRU[string, int64] // counts of ranges at revisions, which never change
	counted      *tree                         // spans whose number of keys is known
	countChanges []countChange                 // creations and deletions, the newest last
	low          int64                         // the oldest revision that they reach back to

	fills       int             // under way
	epoch       int             // fills of an earlier one are void
	changes     []*coder.Record // applied while fills are under way
	changeBytes int
}

const (
	maxSegmentBytes = 256 << 10
	// recordOverhead is about what a single record takes in addition to its key and value.
	recordOverhead = 250
	// idleSegment is how long a segment that is not read is safe from ranges that were
	// requested for the first time.
	idleSegment      = time.Minute
	rememberedRanges = 4096
	rememberedCounts = 4096
	// applyChunk is how many changes are applied before readers get the lock.
	applyChunk = 64

	defaultSpanKeys     = 2048 // about half a millisecond of counting
	defaultCountChanges = 4096
)

// New returns a View that knows nothing yet.
func New(cfg Config) (*View, error) {
	if cfg.SpanKeys == 0 {
		cfg.SpanKeys = defaultSpanKeys
	}
	if cfg.CountChanges == 0 {
		cfg.CountChanges = defaultCountChanges
	}
	memo, err := simplelru.NewLRU[string, int64](rememberedCounts, nil)
	if err != nil {
		return nil, err
	}
	requested, err := simplelru.NewLRU[string, int64](rememberedRanges, nil)
	if err != nil {
		return nil, err
	}
	v := &View{cfg: cfg, born: time.Now(), memo: memo, requested: requested}
	v.segmentBytes, v.largest = min(maxSegmentBytes, v.share()/16), v.share()/8
	v.Purge(cfg.Revision)
	return v, nil
}

// share is how many bytes the segments may take. Single records have what they leave.
func (v *View) share() int { return v.cfg.Budget / 4 * 3 }

func (v *View) now() int64 { return int64(time.Since(v.born)) }

// Purge forgets everything, fills under way included. rev is the new visible revision.
func (v *View) Purge(rev int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.purges.Add(1)
	v.memo.Purge()
	v.contents, v.recent, v.used = newTree(), list.New(), 0
	v.records, v.recentRecords, v.recordBytes = make(map[string]*list.Element), list.New(), 0
	v.counted, v.countChanges, v.low = newTree(), nil, rev
	v.voidFills()
}

// Purges returns how often Purge was called.
func (v *View) Purges() int64 { return v.purges.Load() }

// Apply adds the changes of whole revisions. It must be called in the order of the
// revisions, by one caller at a time, before the visible revision reaches them. Where an event
// lacks the version that it replaces and that is in memory, Apply sets Prev.
func (v *View) Apply(events []*watch.Event) {
	for chunk := range slices.Chunk(events, applyChunk) {
		v.mu.Lock()
		for _, e := range chunk {
			v.apply(e)
		}
		v.mu.Unlock()
	}
}

func (v *View) apply(e *watch.Event) {
	v.applyCount(e)
	v.recordChange(e.Record)
	old, kept := v.applySegment(e.Record)
	single := v.records[string(e.Record.Key)]
	if e.PrevRevision > 0 && e.Prev == nil {
		if old == nil && single != nil {
			old = single.Value.(*coder.Record)
		}
		if old != nil && old.ModRevision == e.PrevRevision {
			e.Prev = old
		}
	}
	v.dropRecord(single)
	if !kept && !e.Record.Tombstone {
		v.addRecord(e.Record)
	}
	v.shrink()
}

// applySegment changes the segment that r's key is in. It returns the record replaced, if
// its value is known, and whether r is kept with its value.
func (v *View) applySegment(r *coder.Record) (old *coder.Record, kept bool) {
	s := v.contents.covering(r.Key)
	if s == nil {
		return nil, false
	}
	size := s.bytes
	old = s.set(r)
	if s.forget(v.segmentBytes); s.live == 0 {
		s.trim(s.last) // a span known to be empty spares later ranges its tombstones, for a few bytes
	}
	v.used += s.bytes - size
	for s.bytes-s.history > v.segmentBytes && len(s.items) > 1 {
		size := s.bytes
		second := s.split()
		v.used += s.bytes - size
		v.addSegment(second, v.recent.InsertAfter(second, s.recency))
		s = v.contents.covering(r.Key)
	}
	if s.detail < Values {
		old = nil
	}
	if Size(r) > v.largest {
		v.removeSegment(s)
		return old, false
	}
	return old, s.detail == Values
}

// Get returns key's record at revision rev, which must not be above the visible revision read
// before the call; nil if there was none. Unless values, it may lack its value. known is
// false if the view does not know.
func (v *View) Get(key []byte, rev int64, values bool) (rec *coder.Record, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.records[string(key)]; e != nil {
		if rec := e.Value.(*coder.Record); rec.ModRevision <= rev {
			v.recentRecords.MoveToFront(e)
			return rec, true
		}
	}
	s := v.contents.covering(key)
	if s == nil || !s.readable(rev, detailOf(values)) {
		return nil, false
	}
	v.touch(s)
	return s.get(key, rev), true
}

func detailOf(values bool) Detail {
	if values {
		return Values
	}
	return Keys
}

// Scan appends to out the records of span at revision rev that are known, up to the first
// key that is not, or until out has limit of them, at least 1. rest is what follows; its
// Start is nil if nothing does. If nothing is known of the beginning of span, known is false,
// and rest is the part of span up to the next key that is known.
func (v *View) Scan(out []*coder.Record, span coder.Span, rev int64, values bool,
	limit int) (_ []*coder.Record, rest coder.Span, known bool) {
	for rest = span; ; known = true {
		var next coder.Span
		var ok bool
		out, next, ok = v.scanSegment(out, rest, rev, detailOf(values), limit)
		switch {
		case !ok && !known:
			return out, v.gap(span, rev, detailOf(values)), false
		case !ok:
			return out, rest, true
		case next.Start == nil, len(out) == limit:
			return out, next, true
		}
		rest = next
	}
}

func (v *View) scanSegment(out []*coder.Record, span coder.Span, rev int64, detail Detail,
	limit int) (_ []*coder.Record, rest coder.Span, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.contents.covering(span.Start)
	if s == nil || !s.readable(rev, detail) {
		return out, span, false
	}
	v.touch(s)
	out = s.appendTo(out, span, rev, limit)
	switch {
	case len(out) == limit:
		rest = coder.Span{Start: coder.KeyAfter(out[limit-1].Key), End: span.End}
	case coder.EndBefore(s.span.End, span.End):
		rest = coder.Span{Start: s.span.End, End: span.End}
	}
	return out, rest, true
}

// gap returns the part of span before the first segment in it that is readable.
func (v *View) gap(span coder.Span, rev int64, detail Detail) coder.Span {
	v.mu.Lock()
	defer v.mu.Unlock()
	for s := range v.contents.overlapping(span) {
		if s.readable(rev, detail) && coder.EndBefore(span.Start, s.span.Start) {
			return coder.Span{Start: span.Start, End: s.span.Start}
		}
	}
	return span
}

// Count returns how many keys of span, or of its beginning, there were at revision rev.
// rest is what is left to be counted, nil if nothing is. ok is false if rev is too old to
// be counted in memory.
func (v *View) Count(span coder.Span, rev int64) (n int64, rest *Remainder, ok bool) {
	if span.Empty() {
		return 0, nil, true
	}
	key := memoKey(span, rev)
	v.mu.Lock()
	defer v.mu.Unlock()
	if n, ok := v.memo.Get(key); ok {
		return n, nil, true
	}
	n, rest, ok = v.count(span, rev)
	if ok && rest == nil {
		v.memo.Add(key, n)
	}
	return n, rest, ok
}

func (v *View) count(span coder.Span, rev int64) (n int64, rest *Remainder, ok bool) {
	if n, ok := v.countSegments(span, rev); ok {
		return n, nil, true
	}
	for {
		part, rest, ok := v.countSpans(span, rev)
		if n += part; !ok || rest == nil {
			return n, nil, ok
		}
		if part, ok = v.countSegments(rest.Span, rev); !ok {
			return n, rest, true
		}
		n += part
		if span.Start = rest.End; span.Start == nil || span.Empty() {
			return n, nil, true
		}
	}
}

// countSegments counts span in segments, if these know all of it.
func (v *View) countSegments(span coder.Span, rev int64) (n int64, ok bool) {
	next := span.Start
	for s := range v.contents.overlapping(span) {
		if coder.EndBefore(next, s.span.Start) || !s.readable(rev, Keys) {
			return 0, false
		}
		n += s.count(span, rev)
		next = s.span.End
	}
	return n, !coder.EndBefore(next, span.End)
}

func (v *View) touch(s *segment) {
	s.used = v.now()
	v.recent.MoveToFront(s.recency)
}

// addSegment adds s, of whose keys no segment knows any, at a place in the order of recency.
func (v *View) addSegment(s *segment, recency *list.Element) {
	s.recency = recency
	v.contents.segments.ReplaceOrInsert(s)
	v.used += s.bytes
}

func (v *View) removeSegment(s *segment) {
	v.recent.Remove(s.recency)
	v.contents.segments.Delete(s)
	v.used -= s.bytes
}

func recordSize(r *coder.Record) int { return len(r.Key) + len(r.Value) + recordOverhead }

// addRecord adds the current record of a key of which there is none.
func (v *View) addRecord(r *coder.Record) {
	size := recordSize(r)
	if size > (v.cfg.Budget-v.used)/8 {
		return // one large record must not evict all others
	}
	v.records[string(r.Key)] = v.recentRecords.PushFront(r)
	v.recordBytes += size
}

func (v *View) dropRecord(e *list.Element) {
	if e == nil {
		return
	}
	r := v.recentRecords.Remove(e).(*coder.Record)
	delete(v.records, string(r.Key))
	v.recordBytes -= recordSize(r)
}

// shrink keeps the budget. Of the segment not read for longest the history goes first, then
// the rest. A segment whose history does not shrink goes as a whole, so that each step
// frees something.
func (v *View) shrink() {
	for v.used > v.share() && v.recent.Len() > 0 {
		s := v.recent.Back().Value.(*segment)
		if size := s.bytes; s.history > 0 {
			s.trim(s.last)
			v.used += s.bytes - size
			if s.bytes < size {
				continue
			}
		}
		v.evict(s)
	}
	for v.used+v.recordBytes > v.cfg.Budget && len(v.records) > 0 {
		v.dropRecord(v.recentRecords.Back())
	}
}

func (v *View) evict(s *segment) {
	v.removeSegment(s)
	v.evictions++
}

// Stats is what a View holds.
type Stats struct {
	RecordBytes  int // of single records
	SegmentBytes int
	Counted      int // spans whose number of keys is known
	Evictions    int // segments evicted so far
}

// Stats returns what v holds.
func (v *View) Stats() Stats {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Stats{RecordBytes: v.recordBytes, SegmentBytes: v.used, Counted: v.counted.segments.Len(),
		Evictions: v.evictions}
}
