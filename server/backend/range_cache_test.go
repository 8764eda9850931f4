package backend

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
)

// checkRangeCache compares what the cache keeps account of with what it holds.
func checkRangeCache(t *testing.T, c *rangeCache) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	used, n := 0, 0
	var last *segment
	c.segments.Ascend(func(s *segment) bool {
		n++
		used += s.bytes
		if last != nil && before(s.start, last.end) || last != nil && last.end == nil || !before(s.start, s.end) {
			t.Errorf("segment [%q, %q) follows [%q, %q)", s.start, s.end, last.start, last.end)
		}
		if s.recency.Value.(*segment) != s {
			t.Errorf("segment [%q, %q) is not in the order of recency", s.start, s.end)
		}
		bytesOf, history, live := s.bytes, s.history, s.live
		if s.measure(); s.bytes != bytesOf || s.history != history || s.live != live {
			t.Errorf("segment [%q, %q) has %d bytes, %d of history, %d live keys; accounted %d, %d, %d", s.start, s.end, s.bytes, s.history, s.live, bytesOf, history, live)
		}
		for i, it := range s.items {
			if bytes.Compare(it.rec.Key, s.start) < 0 || s.end != nil && bytes.Compare(it.rec.Key, s.end) >= 0 || i > 0 && bytes.Compare(it.rec.Key, s.items[i-1].rec.Key) <= 0 {
				t.Errorf("segment [%q, %q) has %q at %d", s.start, s.end, it.rec.Key, i)
			}
			if it.rec.ModRevision > s.last {
				t.Errorf("segment [%q, %q) last changed at %d has %q of %d", s.start, s.end, s.last, it.rec.Key, it.rec.ModRevision)
			}
		}
		last = s
		return true
	})
	if used != c.used || n != c.recent.Len() || used > c.budget {
		t.Errorf("%d segments of %d bytes; accounted %d and %d, budget %d", n, used, c.recent.Len(), c.used, c.budget)
	}
}

func newTestRangeCache(t *testing.T, budget int) *rangeCache {
	t.Helper()
	c, err := newRangeCache(budget, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// simulation is a rangeCache under a table whose commits it is told of later, and
// which is read at any moment in between.
type simulation struct {
	*rand.Rand
	t     *testing.T
	c     *rangeCache
	m     *model            // the table
	log   [][]*coder.Record // by revision from 2 on
	shown int64
	fills []*simulatedFill
	hits  int
}

type simulatedFill struct {
	*rangeFill
	read  bool
	upTo  []byte
	items []item
	floor int64
}

func (s *simulation) key() []byte { return fmt.Appendf(nil, "k%02d", s.IntN(40)) }

func (s *simulation) bounds() (from, end []byte) {
	from, end = s.key(), s.key()
	switch s.IntN(6) {
	case 0:
		from = []byte{0}
	case 1:
		return from, nil
	}
	if bytes.Compare(from, end) >= 0 {
		return []byte("k1"), []byte("k3")
	}
	return from, end
}

// commit changes a few keys of the table in one revision, a key twice sometimes.
func (s *simulation) commit() {
	s.m.rev++
	var changes []*coder.Record
	for range 1 + s.IntN(4) {
		k := s.key()
		prev := s.m.at(string(k), s.m.rev)
		r := &coder.Record{Key: k, Value: make([]byte, s.IntN(200)), CreateRevision: s.m.rev, Version: 1, ModRevision: s.m.rev, Sub: int32(len(changes))}
		switch {
		case prev == nil:
		case s.IntN(2) == 0:
			r = &coder.Record{Key: k, ModRevision: s.m.rev, Sub: int32(len(changes)), Tombstone: true}
		default:
			r.CreateRevision, r.Version = prev.CreateRevision, prev.Version+1
		}
		s.m.versions[string(k)] = append(s.m.versions[string(k)], r)
		changes = append(changes, r)
	}
	s.log = append(s.log, changes)
}

func (s *simulation) show() {
	if s.shown == s.m.rev {
		return
	}
	s.shown++
	for _, r := range s.log[s.shown-2] {
		s.c.set(r)
	}
}

// snapshot reads the table for f: all keys, or as many as a page has.
func (s *simulation) snapshot(f *simulatedFill) {
	f.read, f.floor, f.upTo = true, s.m.compacted, nil
	var keys []string
	for k := range s.m.versions {
		if k >= string(f.start) && (f.end == nil || k < string(f.end)) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	limit := 1 + s.IntN(30)
	for i, k := range keys {
		if i == limit {
			f.upTo = behind([]byte(keys[i-1]))
			return
		}
		versions := s.m.versions[k]
		r := versions[len(versions)-1]
		if r.Tombstone && r.ModRevision <= s.m.compacted {
			continue // its row is gone
		}
		f.floor = max(f.floor, r.ModRevision)
		if r.Tombstone {
			continue
		}
		if !f.values {
			bare := *r
			bare.Value = nil
			r = &bare
		}
		f.items = append(f.items, item{rec: r})
	}
}

func (s *simulation) fill() {
	switch n := s.IntN(4); {
	case n == 0 && len(s.fills) < 4:
		from, end := s.bounds()
		if f := s.c.fill(from, end, s.IntN(4) > 0); f != nil {
			s.fills = append(s.fills, &simulatedFill{rangeFill: f})
		}
	case n > 0 && len(s.fills) > 0:
		i := s.IntN(len(s.fills))
		f := s.fills[i]
		if !f.read {
			s.snapshot(f)
			return
		}
		s.fills = slices.Delete(s.fills, i, i+1)
		if s.IntN(8) == 0 {
			f.drop()
		} else {
			f.keep(f.upTo, f.items, f.floor)
		}
	}
}

// read compares what the cache knows of a range with the table.
func (s *simulation) read() {
	lowest := max(s.m.compacted, 1)
	if lowest > s.shown {
		return
	}
	from, end := s.bounds()
	rev, values, limit := lowest+s.Int64N(s.shown-lowest+1), s.IntN(2) == 0, s.IntN(12)
	if s.IntN(2) == 0 {
		rev = s.shown
	}
	got, next := s.c.read(nil, from, end, rev, values, limit)
	if !bytes.Equal(next, from) {
		s.hits++
	}
	upTo := end
	if next != nil {
		upTo = next
	}
	want := s.list(from, upTo, rev)
	for i, r := range want {
		bare := *r
		if !values {
			bare.Value = nil
		}
		want[i] = &bare
	}
	for i, r := range got {
		bare := *r
		if !values {
			bare.Value = nil
		}
		got[i] = &bare
	}
	if g, w := fmt.Sprint(describeAll(got)), fmt.Sprint(describeAll(want)); g != w || limit > 0 && len(got) > limit {
		s.t.Fatalf("[%q, %q) at revision %d of %d, limit %d, known up to %q:\n got %s\nwant %s", from, end, rev, s.shown, limit, next, g, w)
	}
	if n, known := s.c.count(from, end, rev); known && n != int64(len(s.list(from, end, rev))) {
		s.t.Fatalf("[%q, %q) at revision %d of %d counts %d, want %d", from, end, rev, s.shown, n, len(s.list(from, end, rev)))
	}
	if r, known := s.c.get(from, rev, true); known && describe(r) != describe(s.m.at(string(from), rev)) {
		s.t.Fatalf("%q at revision %d of %d is %s, want %s", from, rev, s.shown, describe(r), describe(s.m.at(string(from), rev)))
	}
	if gap := s.c.gap(from, end, rev, values); before(end, gap) {
		s.t.Fatalf("the gap of [%q, %q) ends at %q", from, end, gap)
	}
}

func (s *simulation) list(from, end []byte, rev int64) []*coder.Record {
	if end == nil {
		end = []byte{0}
	}
	if bytes.Equal(from, end) {
		return nil
	}
	return s.m.list(KeyRange{from, end}, rev)
}

func describeAll(rs []*coder.Record) (out []string) {
	for _, r := range rs {
		out = append(out, describe(r))
	}
	return out
}

// TestTheRangeCacheKnowsWhatTheTableHolds: whenever the table is read between
// commits that the cache hears of later, and however late what was read is kept.
func TestTheRangeCacheKnowsWhatTheTableHolds(t *testing.T) {
	hits, evictions := 0, 0
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			budget := []int{0, 2500, 9000, 30_000, 1 << 20}[r.IntN(5)]
			s := &simulation{Rand: r, t: t, c: newTestRangeCache(t, budget), m: newModel(), shown: 1}
			for range 4000 {
				switch n := s.IntN(20); {
				case n < 3:
					s.commit()
				case n < 7:
					s.show()
				case n < 12:
					s.fill()
				case n == 12 && s.IntN(40) == 0:
					s.c.purge()
				case n == 13 && s.IntN(20) == 0 && s.shown > s.m.compacted:
					s.m.compacted += s.Int64N(s.shown - s.m.compacted + 1)
				default:
					s.read()
				}
			}
			checkRangeCache(t, s.c)
			hits += s.hits
			evictions += s.c.evictions
			if budget == 0 && s.hits > 0 {
				t.Errorf("a cache that is off answered %d reads", s.hits)
			}
		})
	}
	if hits < 1000 || evictions < 100 {
		t.Errorf("%d reads from memory, %d evictions: this tests little", hits, evictions)
	}
}

// TestRangesReadOnceDoNotDriveOutOthers: what is read again and again stays, and
// what takes its place was itself read before.
func TestRangesReadOnceDoNotDriveOutOthers(t *testing.T) {
	c := newTestRangeCache(t, 48_000)
	read := func(prefix string) (known bool) {
		from, end := []byte(prefix), []byte(prefix+"\xff")
		if _, next := c.read(nil, from, end, 10, true, 0); next == nil {
			return true
		}
		var items []item
		for i := range 8 {
			items = append(items, item{rec: &coder.Record{Key: fmt.Appendf(nil, "%s/%d", prefix, i), Value: make([]byte, 1000), ModRevision: 2}})
		}
		if f := c.fill(from, end, true); f != nil {
			f.keep(nil, items, 2)
		}
		return false
	}
	for i := range 4 { // four of 11 kB each fill it
		read(fmt.Sprint("hot", i))
	}
	for i := range 100 {
		for j := range 4 {
			if !read(fmt.Sprint("hot", j)) {
				t.Fatalf("a scan of %d ranges drove out one that is read all the time", i)
			}
		}
		read(fmt.Sprint("once", i))
	}
	read("new")
	for range 2 {
		read("new")
	}
	if !read("new") {
		t.Error("a range that is read again and again does not get in")
	}
	checkRangeCache(t, c)
}

// TestAPageIsReadAtItsRevisionWhileKeysChange: the pages of a list are read at the
// revision of the first; the cache answers them from its history.
func TestAPageIsReadAtItsRevisionWhileKeysChange(t *testing.T) {
	c := newTestRangeCache(t, 16<<20)
	f := c.fill([]byte("a"), []byte("b"), true)
	f.keep(nil, nil, 1)
	for i := range 300 {
		c.set(&coder.Record{Key: fmt.Appendf(nil, "a%03d", i), Value: make([]byte, 100), ModRevision: int64(i + 2)})
	}
	for i := range 300 {
		c.set(&coder.Record{Key: fmt.Appendf(nil, "a%03d", i), ModRevision: int64(i + 302), Tombstone: true})
	}
	for rev := int64(1); rev <= 601; rev++ {
		want := min(rev-1, 601-rev)
		got, next := c.read(nil, []byte("a"), []byte("b"), rev, true, 0)
		if next != nil || int64(len(got)) != want {
			t.Fatalf("revision %d: %d records, want %d; known up to %q", rev, len(got), want, next)
		}
		if n, known := c.count([]byte("a"), []byte("b"), rev); !known || n != want {
			t.Fatalf("revision %d counts %d (%t), want %d", rev, n, known, want)
		}
	}
	checkRangeCache(t, c)
}

// TestHistoryIsBounded: a segment that changes all the time does not grow.
func TestHistoryIsBounded(t *testing.T) {
	c := newTestRangeCache(t, 16<<20)
	f := c.fill([]byte("a"), []byte("b"), true)
	f.keep(nil, nil, 1)
	for i := range int64(10_000) {
		c.set(&coder.Record{Key: fmt.Appendf(nil, "a%d", i%7), Value: make([]byte, 1000), ModRevision: i + 2})
		if s := c.stats(); s.bytes > 3*maxSegmentBytes {
			t.Fatalf("seven keys take %d bytes after %d changes", s.bytes, i)
		}
		for _, back := range []int64{0, 50} {
			if _, next := c.read(nil, []byte("a"), []byte("b"), max(i+2-back, 1), true, 0); next != nil {
				t.Fatalf("after %d changes the content %d changes ago is not known", i, back)
			}
		}
	}
	checkRangeCache(t, c)
}
