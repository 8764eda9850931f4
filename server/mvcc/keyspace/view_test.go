package keyspace

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/watch"
)

func newView(t testing.TB, cfg Config) *View {
	t.Helper()
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// changeOf returns the event of a change that replaces revision prev, 0 for none.
func changeOf(r *coder.Record, prev int64) *watch.Event {
	e := &watch.Event{Record: r, PrevRevision: prev}
	if r.Tombstone {
		e.Type = watch.Delete
	}
	return e
}

// put applies records that create keys.
func (v *View) put(records ...*coder.Record) {
	for _, r := range records {
		v.Apply([]*watch.Event{changeOf(r, 0)})
	}
}

// check compares what v accounts for with what it holds.
func (v *View) check(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	used, bytesOfRecords := 0, 0
	for trees, last := []*tree{v.contents, v.counted}, (*segment)(nil); len(trees) > 0; trees, last = trees[1:], nil {
		trees[0].segments.Ascend(func(s *segment) bool {
			if last != nil && coder.EndBefore(s.span.Start, last.span.End) || s.span.Empty() || s.live < 0 {
				t.Errorf("segment [%q, %q) of %d keys follows [%q, %q)", s.span.Start, s.span.End, s.live, last.span.Start,
					last.span.End)
			}
			if last = s; s.detail > Counts {
				used += s.bytes
				v.checkSegment(t, s)
			}
			return true
		})
	}
	for key, e := range v.records {
		r := e.Value.(*coder.Record)
		bytesOfRecords += recordSize(r)
		if key != string(r.Key) || r.Tombstone {
			t.Errorf("%q has the record %v", key, r)
		}
	}
	if used != v.used || v.contents.segments.Len() != v.recent.Len() || used > v.share() {
		t.Errorf("%d segments of %d bytes; accounted for %d of %d, share %d", v.contents.segments.Len(), used,
			v.recent.Len(), v.used, v.share())
	}
	if bytesOfRecords != v.recordBytes || len(v.records) != v.recentRecords.Len() || v.used+v.recordBytes > v.cfg.Budget {
		t.Errorf("%d records of %d bytes; accounted for %d of %d, budget %d", len(v.records), bytesOfRecords,
			v.recentRecords.Len(), v.recordBytes, v.cfg.Budget)
	}
	if len(v.countChanges) > 2*v.cfg.CountChanges {
		t.Errorf("%d creations and deletions are kept, want at most %d", len(v.countChanges), 2*v.cfg.CountChanges)
	}
}

func (v *View) checkSegment(t *testing.T, s *segment) {
	t.Helper()
	if s.recency.Value.(*segment) != s {
		t.Errorf("segment [%q, %q) is not in the order of recency", s.span.Start, s.span.End)
	}
	bytesOf, history, live := s.bytes, s.history, s.live
	if s.measure(); s.bytes != bytesOf || s.history != history || s.live != live {
		t.Errorf("segment [%q, %q) has %d bytes, %d of history, %d live keys; accounted for %d, %d, %d", s.span.Start,
			s.span.End, s.bytes, s.history, s.live, bytesOf, history, live)
	}
	for i, it := range s.items {
		if !s.span.Contains(it.rec.Key) || i > 0 && bytes.Compare(it.rec.Key, s.items[i-1].rec.Key) <= 0 ||
			it.rec.ModRevision > s.last {
			t.Errorf("segment [%q, %q), last changed at %d, has %q of %d at %d", s.span.Start, s.span.End, s.last, it.rec.Key,
				it.rec.ModRevision, i)
		}
	}
}

// table is a model of the database: every version of every key.
type table struct {
	versions  map[string][]*coder.Record
	rev       int64
	compacted int64
}

func (m *table) at(key string, rev int64) *coder.Record {
	for _, r := range slices.Backward(m.versions[key]) {
		if r.ModRevision <= rev {
			if r.Tombstone {
				return nil
			}
			return r
		}
	}
	return nil
}

func (m *table) list(span coder.Span, rev int64) (out []*coder.Record) {
	for _, k := range slices.Sorted(maps.Keys(m.versions)) {
		if r := m.at(k, rev); r != nil && span.Contains([]byte(k)) {
			out = append(out, r)
		}
	}
	return out
}

// simulation is a View over a table whose commits are applied later than they happen, and
// which is read at any time in between.
type simulation struct {
	*rand.Rand
	t       *testing.T
	v       *View
	m       *table
	log     [][]*watch.Event // by revision from 2 on
	applied int64
	fills   []*simulatedFill

	hits, counted, singles int
}

type simulatedFill struct {
	*Fill
	key     []byte // of BeginKey
	read    bool
	upTo    []byte
	records []*coder.Record
	floor   int64
}

func (s *simulation) key() []byte { return fmt.Appendf(nil, "k%02d", s.IntN(40)) }

func (s *simulation) span() coder.Span {
	from, end := s.key(), s.key()
	switch s.IntN(6) {
	case 0:
		from = []byte{0}
	case 1:
		return coder.Span{Start: from}
	}
	if bytes.Compare(from, end) >= 0 {
		return coder.Span{Start: []byte("k1"), End: []byte("k3")}
	}
	return coder.Span{Start: from, End: end}
}

// commit changes some keys of the table in one revision, a key twice at times.
func (s *simulation) commit() {
	s.m.rev++
	var events []*watch.Event
	for range 1 + s.IntN(4) {
		k := s.key()
		prev := s.m.at(string(k), s.m.rev)
		r := &coder.Record{Key: k, Value: make([]byte, s.IntN(200)), CreateRevision: s.m.rev, Version: 1,
			ModRevision: s.m.rev, Sub: int32(len(events))}
		e := &watch.Event{Record: r}
		if prev != nil {
			e.PrevRevision = prev.ModRevision
			r.CreateRevision, r.Version = prev.CreateRevision, prev.Version+1
			if s.IntN(2) == 0 {
				e.Type, e.Record = watch.Delete, &coder.Record{Key: k, ModRevision: s.m.rev, Sub: r.Sub, Tombstone: true}
			}
		}
		s.m.versions[string(k)] = append(s.m.versions[string(k)], e.Record)
		events = append(events, e)
	}
	s.log = append(s.log, events)
}

func (s *simulation) apply() {
	if s.applied == s.m.rev {
		return
	}
	s.applied++
	events := s.log[s.applied-2]
	s.v.Apply(events)
	for _, e := range events {
		if e.Prev == nil {
			continue
		}
		if e.Prev.ModRevision != e.PrevRevision || !slices.Contains(s.m.versions[string(e.Record.Key)], e.Prev) {
			s.t.Fatalf("the event of %s has %s, not revision %d, as the version before", describe(e.Record), describe(e.Prev),
				e.PrevRevision)
		}
	}
}

// newest returns key's newest record in the table, nil if its row is gone.
func (s *simulation) newest(key string) *coder.Record {
	versions := s.m.versions[key]
	if len(versions) == 0 {
		return nil
	}
	if r := versions[len(versions)-1]; !r.Tombstone || r.ModRevision > s.m.compacted {
		return r
	}
	return nil
}

// read takes a snapshot of the table for f: all keys, or as many as a page has.
func (s *simulation) readFor(f *simulatedFill) {
	f.read, f.floor, f.upTo = true, s.m.compacted, nil
	if f.key != nil {
		if r := s.newest(string(f.key)); r != nil && !r.Tombstone {
			f.records = []*coder.Record{r}
		}
		return
	}
	limit, rows, last := 1+s.IntN(30), 0, ""
	for _, k := range slices.Sorted(maps.Keys(s.m.versions)) {
		if !f.span.Contains([]byte(k)) {
			continue
		}
		if rows == limit {
			f.upTo = coder.KeyAfter([]byte(last))
			return
		}
		rows, last = rows+1, k
		r := s.newest(k)
		if r == nil {
			continue
		}
		f.floor = max(f.floor, r.ModRevision)
		if r.Tombstone {
			continue
		}
		if !f.Values() {
			bare := *r
			bare.Value = nil
			r = &bare
		}
		f.records = append(f.records, r)
	}
}

func (s *simulation) fill() {
	switch n := s.IntN(5); {
	case n == 0 && len(s.fills) < 4:
		if f := s.v.Begin(s.span(), s.IntN(4) > 0); f != nil {
			s.fills = append(s.fills, &simulatedFill{Fill: f})
		}
	case n == 1 && len(s.fills) < 4:
		k := s.key()
		s.fills = append(s.fills, &simulatedFill{Fill: s.v.BeginKey(k), key: k})
	case n == 2:
		s.addCount()
	case len(s.fills) > 0:
		i := s.IntN(len(s.fills))
		f := s.fills[i]
		if !f.read {
			s.readFor(f)
			return
		}
		s.fills = slices.Delete(s.fills, i, i+1)
		switch {
		case s.IntN(8) == 0:
			f.Drop()
		case f.key == nil:
			f.Keep(f.upTo, f.records, f.floor)
		case len(f.records) > 0:
			f.KeepKey(f.records[0])
		default:
			f.KeepKey(nil)
		}
	}
}

// revision returns one that can be read, 0 if none can.
func (s *simulation) revision() int64 {
	lowest := max(s.m.compacted, 1)
	switch {
	case lowest > s.applied:
		return 0
	case s.IntN(2) == 0:
		return s.applied
	default:
		return lowest + s.Int64N(s.applied-lowest+1)
	}
}

func (s *simulation) addCount() {
	if rev := s.revision(); rev > 0 {
		span := s.span()
		s.v.AddCounts(coder.Counts{Revision: rev, Spans: []coder.CountedSpan{{Span: span,
			Keys: int64(len(s.m.list(span, rev)))}}})
	}
}

// unlimited is more than any scan finds.
const unlimited = 1 << 20

// read compares what the view knows of a range with the table.
func (s *simulation) read() {
	rev := s.revision()
	if rev == 0 {
		return
	}
	span, values, limit := s.span(), s.IntN(2) == 0, s.IntN(12)
	if limit == 0 {
		limit = unlimited
	}
	got, rest, known := s.v.Scan(nil, span, rev, values, limit)
	upTo := span
	switch {
	case !known:
		if len(got) > 0 || !bytes.Equal(rest.Start, span.Start) || rest.Empty() || coder.EndBefore(span.End, rest.End) {
			s.t.Fatalf("of [%q, %q) the part [%q, %q) is unknown, with %d records", span.Start, span.End, rest.Start, rest.End,
				len(got))
		}
		upTo.End = span.Start
	case rest.Start != nil:
		upTo.End = rest.Start
	}
	if known {
		s.hits++
	}
	if g, w := fmt.Sprint(describeAll(got, values)), fmt.Sprint(describeAll(s.m.list(upTo, rev), values)); g != w ||
		len(got) > limit {
		s.t.Fatalf("[%q, %q) at revision %d of %d, limit %d, known up to %q:\n got %s\nwant %s", span.Start, span.End, rev,
			s.applied, limit, upTo.End, g, w)
	}
	key := s.key()
	if r, known := s.v.Get(key, rev, true); known {
		if s.singles++; describe(r) != describe(s.m.at(string(key), rev)) {
			s.t.Fatalf("%q at revision %d of %d is %s, want %s", key, rev, s.applied, describe(r),
				describe(s.m.at(string(key), rev)))
		}
	}
	s.count(span, rev)
}

func (s *simulation) count(span coder.Span, rev int64) {
	want := int64(len(s.m.list(span, rev)))
	n, rest, ok := s.v.Count(span, rev)
	switch {
	case !ok:
		if rev >= s.v.low {
			s.t.Fatalf("[%q, %q) is not counted at revision %d, counts reach back to %d", span.Start, span.End, rev, s.v.low)
		}
		return
	case rest == nil:
		s.counted++
		s.v.Remember(span, rev, n, s.v.Purges())
	case rest.Empty() || coder.EndBefore(span.End, rest.End) || coder.EndBefore(rest.Start, span.Start):
		s.t.Fatalf("of [%q, %q) the part [%q, %q) is left", span.Start, span.End, rest.Start, rest.End)
	default:
		want = int64(len(s.m.list(coder.Span{Start: span.Start, End: rest.Start}, rev)))
	}
	if n != want {
		s.t.Fatalf("[%q, %q) at revision %d of %d has %d keys, want %d; left is %+v", span.Start, span.End, rev, s.applied,
			n, want, rest)
	}
}

// recall compares the counts that are stored, and goes on with them as after a start.
func (s *simulation) recall() {
	rev := s.revision()
	if rev == 0 {
		return
	}
	c, ok := s.v.Counts(rev)
	if ok != (rev >= s.v.low) {
		s.t.Fatalf("counts at revision %d are %t, they reach back to %d", rev, ok, s.v.low)
	}
	for _, p := range c.Spans {
		if want := int64(len(s.m.list(p.Span, rev))); p.Keys != want {
			s.t.Fatalf("[%q, %q) had %d keys at revision %d of %d, want %d", p.Start, p.End, p.Keys, rev, s.applied, want)
		}
	}
	if ok && s.IntN(2) == 0 {
		s.v.counted = newTree()
		if !s.v.AddCounts(c) || len(c.Spans) > 0 && s.v.Stats().Counted == 0 {
			s.t.Fatalf("%+v were not added", c)
		}
	}
}

func describe(r *coder.Record) string {
	if r == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s@%d/%d of %d bytes", r.Key, r.ModRevision, r.Version, len(r.Value))
}

func describeAll(rs []*coder.Record, values bool) (out []string) {
	for _, r := range rs {
		bare := *r
		if !values {
			bare.Value = nil
		}
		out = append(out, describe(&bare))
	}
	return out
}

// TestViewMatchesTable: at every revision the view answers what the table held, whenever
// the table was read between commits that are applied later, and however late what was
// read is kept.
func TestViewMatchesTable(t *testing.T) {
	hits, evictions, counted, singles := 0, 0, 0, 0
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			budget := []int{0, 2500, 9000, 30_000, 1 << 20}[r.IntN(5)]
			s := &simulation{
				Rand: r, t: t, v: newView(t, Config{Budget: budget, Revision: 1, SpanKeys: 1 + r.IntN(8),
					CountChanges: 1 + r.IntN(100)}),
				m: &table{versions: make(map[string][]*coder.Record), rev: 1}, applied: 1,
			}
			for range 4000 {
				switch n := s.IntN(20); {
				case n < 3:
					s.commit()
				case n < 7:
					s.apply()
				case n < 12:
					s.fill()
				case n == 12 && s.IntN(40) == 0:
					if s.IntN(2) == 0 { // as a follower for which history was compacted
						s.applied = s.m.rev
					}
					s.v.Purge(s.applied)
				case n == 12 && s.IntN(4) == 0:
					s.recall()
				case n == 13 && s.IntN(20) == 0 && s.applied > s.m.compacted:
					s.m.compacted += s.Int64N(s.applied - s.m.compacted + 1)
				default:
					s.read()
				}
			}
			s.v.check(t)
			hits, evictions, counted, singles = hits+s.hits, evictions+s.v.Stats().Evictions, counted+s.counted,
				singles+s.singles
			if budget == 0 && s.hits+s.singles > 0 {
				t.Errorf("a view without a budget answered %d reads", s.hits+s.singles)
			}
		})
	}
	if hits < 1000 || evictions < 100 || counted < 1000 || singles < 1000 {
		t.Errorf("%d ranges, %d counts and %d keys from memory, %d evictions: this tests little", hits, counted, singles,
			evictions)
	}
}

// TestRangesReadOnceEvictNothing: what is read all the time stays, and what takes its place
// was itself read before.
func TestRangesReadOnceEvictNothing(t *testing.T) {
	v := newView(t, Config{Budget: 64_000})
	read := func(prefix string) (known bool) {
		span := coder.Span{Start: []byte(prefix), End: []byte(prefix + "\xff")}
		if _, rest, _ := v.Scan(nil, span, 10, true, unlimited); rest.Start == nil {
			return true
		}
		var records []*coder.Record
		for i := range 8 {
			records = append(records, &coder.Record{Key: fmt.Appendf(nil, "%s/%d", prefix, i), Value: make([]byte, 1000),
				ModRevision: 2})
		}
		v.Begin(span, true).Keep(nil, records, 2)
		return false
	}
	for i := range 4 { // four of 11 kB each fill the share of segments
		read(fmt.Sprint("hot", i))
	}
	for i := range 100 {
		for j := range 4 {
			if !read(fmt.Sprint("hot", j)) {
				t.Fatalf("a scan of %d ranges evicted one that is read all the time", i)
			}
		}
		read(fmt.Sprint("once", i))
	}
	read("new")
	for range 2 {
		read("new")
	}
	if !read("new") {
		t.Error("a range that is read again and again is not admitted")
	}
	v.check(t)
}

// TestPagesAreReadAtTheirRevisionWhileKeysChange: the pages of a list are read at the
// revision of the first, from the history of the segment.
func TestPagesAreReadAtTheirRevisionWhileKeysChange(t *testing.T) {
	v := newView(t, Config{Budget: 16 << 20})
	all := coder.Span{Start: []byte("a"), End: []byte("b")}
	stays := &coder.Record{Key: []byte("a"), ModRevision: 1} // else the history would go with the last key
	v.Begin(all, true).Keep(nil, []*coder.Record{stays}, 1)
	for i := range 300 {
		v.put(&coder.Record{Key: fmt.Appendf(nil, "a%03d", i), Value: make([]byte, 100), ModRevision: int64(i + 2)})
	}
	for i := range 300 {
		v.Apply([]*watch.Event{changeOf(&coder.Record{Key: fmt.Appendf(nil, "a%03d", i), ModRevision: int64(i + 302),
			Tombstone: true}, int64(i+2))})
	}
	for rev := int64(1); rev <= 601; rev++ {
		want := 1 + min(rev-1, 601-rev)
		got, rest, known := v.Scan(nil, all, rev, true, unlimited)
		if !known || rest.Start != nil || int64(len(got)) != want {
			t.Fatalf("revision %d: %d records, want %d; %q is left", rev, len(got), want, rest.Start)
		}
		if n, rest, ok := v.Count(all, rev); !ok || rest != nil || n != want {
			t.Fatalf("revision %d counts %d (%t), want %d", rev, n, ok, want)
		}
	}
	reversed := coder.Span{Start: []byte("a200"), End: []byte("a100")}
	if got, rest, known := v.Scan(nil, reversed, 301, true, unlimited); !known || rest.Start != nil || len(got) != 0 {
		t.Fatalf("a span that ends before it starts has %d records, and %q is left", len(got), rest.Start)
	}
	v.check(t)
}

// TestEmptySpansStayKnown: they take next to nothing, so that ranges never walk over their tombstones in the table.
func TestEmptySpansStayKnown(t *testing.T) {
	v := newView(t, Config{Budget: 1 << 20})
	all, rev := coder.Span{Start: []byte("a0000"), End: []byte("a1000")}, int64(1)
	for i := range 1000 {
		span := coder.Span{Start: fmt.Appendf(nil, "a%04d", i), End: fmt.Appendf(nil, "a%04d", i+1)}
		var records []*coder.Record
		for j := range 10 {
			records = append(records, &coder.Record{Key: fmt.Appendf(nil, "%s-%d", span.Start, j),
				Value: make([]byte, 500), ModRevision: rev})
		}
		v.Begin(span, true).Keep(nil, records, rev)
		for _, r := range records {
			rev++
			v.Apply([]*watch.Event{changeOf(&coder.Record{Key: r.Key, ModRevision: rev, Tombstone: true}, r.ModRevision)})
		}
	}
	got, rest, known := v.Scan(nil, all, rev, true, unlimited)
	if !known || rest.Start != nil || len(got) != 0 {
		t.Errorf("%d records, and %q is left (%t): %+v", len(got), rest.Start, known, v.Stats())
	}
	v.check(t)
}

// TestHistoryIsBounded: a segment that changes all the time does not grow.
func TestHistoryIsBounded(t *testing.T) {
	v := newView(t, Config{Budget: 16 << 20})
	all := coder.Span{Start: []byte("a"), End: []byte("b")}
	v.Begin(all, true).Keep(nil, nil, 1)
	for i := range int64(10_000) {
		v.put(&coder.Record{Key: fmt.Appendf(nil, "a%d", i%7), Value: make([]byte, 1000), ModRevision: i + 2})
		if s := v.Stats(); s.SegmentBytes > 3*maxSegmentBytes {
			t.Fatalf("seven keys take %d bytes after %d changes", s.SegmentBytes, i)
		}
		for _, back := range []int64{0, 50} {
			if _, rest, known := v.Scan(nil, all, max(i+2-back, 1), true, unlimited); !known || rest.Start != nil {
				t.Fatalf("after %d changes the content %d changes ago is not known", i, back)
			}
		}
	}
	v.check(t)
}

// TestViewShrinksToAnyBudget: a segment whose history cannot be dropped is evicted.
func TestViewShrinksToAnyBudget(t *testing.T) {
	v := newView(t, Config{Budget: 4096})
	tombstone := item{rec: &coder.Record{Key: []byte("a"), ModRevision: 9, Tombstone: true}}
	s := newSegment(coder.Span{Start: []byte("a"), End: []byte("b")}, Values, 9, []item{tombstone})
	s.floor, s.last = 5, 5 // must not happen: the newest change is revision 9
	v.addSegment(s, v.recent.PushFront(s))
	v.cfg.Budget = 1
	v.shrink()
	if s := v.Stats(); s.SegmentBytes != 0 || v.contents.segments.Len() != 0 {
		t.Errorf("%+v is left", s)
	}
}

// TestChangesOfFillsAreBounded: while the database does not answer, the changes that are
// kept for those who read it are bounded in number and in bytes, and what they read is not
// kept.
func TestChangesOfFillsAreBounded(t *testing.T) {
	all := coder.Span{Start: []byte("a")}
	for name, size := range map[string]int{"many": 0, "large": maxFillBytes / 100} {
		t.Run(name, func(t *testing.T) {
			changes := maxFillChanges + 1
			if size > 0 {
				changes = 101
			}
			v := newView(t, Config{Budget: 1 << 20})
			slow := v.Begin(all, true)
			for i := range changes {
				v.put(&coder.Record{Key: []byte("a"), Value: make([]byte, size), ModRevision: int64(i + 2)})
				if len(v.changes) > maxFillChanges || v.changeBytes > maxFillBytes {
					t.Fatalf("%d changes of %d bytes are kept", len(v.changes), v.changeBytes)
				}
			}
			later := v.Begin(all, true)
			slow.Keep(nil, nil, 1)
			if v.contents.segments.Len() != 0 {
				t.Error("what was read before too many changes is kept")
			}
			later.Keep(nil, nil, 1<<40)
			if v.contents.segments.Len() != 1 {
				t.Error("a later fill is void too")
			}
		})
	}
}
