package watch

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// bed is a hub over a history, with the steps tests are made of.
type bed struct {
	t    *testing.T
	src  *history
	hub  *Hub
	reg  *prometheus.Registry
	prev bool // publish with Event.Prev
}

func newBed(t *testing.T, cfg Config) *bed {
	t.Helper()
	src, reg := newHistory(), prometheus.NewRegistry()
	cfg = completed(cfg)
	cfg.Registerer = reg
	b := &bed{t: t, src: src, reg: reg, hub: NewHub(src, src.revision, -1, cfg)}
	t.Cleanup(b.hub.Close)
	return b
}

// completed returns cfg with the default of each number that is zero.
func completed(cfg Config) Config {
	d := DefaultConfig()
	cfg.RingEvents, cfg.RingBytes = cmp.Or(cfg.RingEvents, d.RingEvents), cmp.Or(cfg.RingBytes, d.RingBytes)
	cfg.QueueEvents, cfg.QueueBytes = cmp.Or(cfg.QueueEvents, d.QueueEvents), cmp.Or(cfg.QueueBytes, d.QueueBytes)
	cfg.QueuedBytes = cmp.Or(cfg.QueuedBytes, d.QueuedBytes)
	cfg.ProgressInterval = cmp.Or(cfg.ProgressInterval, d.ProgressInterval)
	return cfg
}

// put commits and publishes one revision that puts key; it returns the revision.
func (b *bed) put(keys ...string) int64 {
	var changes []change
	for _, k := range keys {
		changes = append(changes, change{k, fmt.Sprintf("value %d", b.src.revision+1)})
	}
	b.publish(b.src.commit(b.prev, changes...))
	return b.src.revision
}

func (b *bed) delete(key string) int64 {
	b.publish(b.src.commit(b.prev, change{key: key}))
	return b.src.revision
}

func (b *bed) publish(events []*Event) { b.hub.Publish(events, b.src.revision, func() {}) }

func (b *bed) compact(rev int64) {
	b.src.setCompact(rev)
	b.hub.Compact(rev)
}

// metric returns the sum of a metric over its labels.
func (b *bed) metric(name string) (sum float64) {
	b.t.Helper()
	families, err := b.reg.Gather()
	require.NoError(b.t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
			return sum
		}
	}
	b.t.Fatalf("no metric %s", name)
	return 0
}

func (b *bed) stream(creates ...CreateRequest) *Stream {
	s := b.hub.NewStream()
	for _, r := range creates {
		s.Create(Permitted, r)
	}
	return s
}

// next returns the next response in a short notation.
func (b *bed) next(s *Stream) string {
	b.t.Helper()
	return brief(b.response(s))
}

func (b *bed) response(s *Stream) *Response {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Deadline)
	defer cancel()
	r, err := s.Next(ctx)
	require.NoError(b.t, err)
	return r
}

func (b *bed) expect(s *Stream, want ...string) {
	b.t.Helper()
	for _, w := range want {
		require.Equal(b.t, w, b.next(s))
	}
}

// nothing checks that nothing is queued; for use where everything there is to
// queue has been.
func (b *bed) nothing(s *Stream) {
	b.t.Helper()
	p, err := s.next()
	require.NoError(b.t, err)
	if p != nil {
		b.t.Fatalf("queued: %s", brief(&p.resp))
	}
}

// brief renders a response: "id@revision" and what it says.
func brief(r *Response) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d@%d", r.WatchID, r.Revision)
	if r.Created {
		s.WriteString(" created")
	}
	if r.Canceled {
		s.WriteString(" canceled")
	}
	if r.CompactRevision != 0 {
		fmt.Fprintf(&s, " compact=%d", r.CompactRevision)
	}
	if r.CancelReason != "" {
		fmt.Fprintf(&s, " %q", r.CancelReason)
	}
	for i, e := range r.Events {
		verb := "put"
		if e.Type == Delete {
			verb = "del"
		}
		fmt.Fprintf(&s, " %s:%s:%d", verb, e.Record.Key, e.Record.ModRevision)
		if r.Prev != nil && r.Prev[i] != nil {
			fmt.Fprintf(&s, "<%d", r.Prev[i].ModRevision)
		}
	}
	return s.String()
}

func key(k string) CreateRequest { return CreateRequest{Key: []byte(k)} }

func span(k, end string) CreateRequest { return CreateRequest{Key: []byte(k), End: []byte(end)} }

func (r CreateRequest) from(rev int64) CreateRequest { r.StartRevision = rev; return r }
func (r CreateRequest) id(id int64) CreateRequest    { r.WatchID = id; return r }
func (r CreateRequest) withPrev() CreateRequest      { r.PrevKV = true; return r }

func TestEventsDoNotOvertakeProgress(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(key("a"), key("b"))
	b.expect(s, "0@1 created", "1@1 created")
	b.put("a")
	b.put("b")
	s.RequestProgress()
	b.put("a")
	b.put("b")
	b.put("a")
	b.expect(s, "0@2 put:a:2", "1@3 put:b:3", "-1@3", "0@6 put:a:4 put:a:6", "1@5 put:b:5")
}

func TestMergedResponsesAreBounded(t *testing.T) {
	b := newBed(t, Config{QueueEvents: 1 << 20, QueueBytes: 1 << 30})
	s := b.stream(key("a"))
	b.expect(s, "0@1 created")
	for range batchEvents + 1 {
		b.put("a")
	}
	require.Len(t, b.response(s).Events, batchEvents)
	require.Len(t, b.response(s).Events, 1)
	big := strings.Repeat("x", batchBytes/2)
	for range 3 {
		b.publish(b.src.commit(false, change{"a", big}))
	}
	for range 3 {
		require.Len(t, b.response(s).Events, 1)
	}
}

func TestStartInTheFutureWaits(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(key("a").from(4), key("a").from(2))
	b.expect(s, "0@1 created", "1@1 created")
	b.put("a")
	b.put("a")
	b.expect(s, "1@3 put:a:2 put:a:3")
	b.nothing(s)
	b.put("a")
	got := map[string]bool{b.next(s): true, b.next(s): true}
	require.Equal(t, map[string]bool{"0@4 put:a:4": true, "1@4 put:a:4": true}, got)
}

func TestPublishIgnoresEventsAlreadySeen(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(key("a"))
	b.expect(s, "0@1 created")
	events := b.src.commit(false, change{"a", "1"})
	b.publish(events)
	events = append(events, b.src.commit(false, change{"a", "2"})...)
	b.publish(events)
	b.publish(events)
	b.hub.Publish(nil, 1, func() {})
	require.EqualValues(t, 3, b.hub.Revision())
	b.expect(s, "0@3 put:a:2 put:a:3")
	b.nothing(s)
}

// A client that has read a revision, and then creates a watch without a start revision, does not get the events of
// that revision.
func TestNoWatcherIsCreatedWhileARevisionBecomesReadable(t *testing.T) {
	for _, jump := range []bool{false, true} {
		b := newBed(t, Config{})
		s := b.stream()
		events := b.src.commit(false, change{"a", "1"})
		show := func() {
			if b.hub.mu.TryLock() {
				b.hub.mu.Unlock()
				t.Error("a watcher could be created between the revision and its events")
			}
			go s.Create(Permitted, key("a"))
		}
		if jump {
			b.hub.Jump(b.src.revision, show)
		} else {
			b.hub.Publish(events, b.src.revision, show)
		}
		b.expect(s, "0@2 created")
		b.nothing(s)
	}
}

func TestPublishWithoutEventsMovesTheRevision(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(key("a"))
	b.hub.Publish(nil, 7, func() {})
	s.RequestProgress()
	b.expect(s, "0@1 created", "-1@7")
}

func TestPublishOutOfOrderIsReadFromTheSource(t *testing.T) {
	b := newBed(t, Config{})
	b.put("a")
	s := b.stream(key("a"), key("a").from(4), key("a").from(9))
	b.expect(s, "0@2 created", "1@2 created", "2@2 created")
	first, second := b.src.commit(false, change{"a", "1"}), b.src.commit(false, change{"a", "2"})
	b.publish(append(second, first...))
	got := map[string]bool{b.next(s): true, b.next(s): true}
	require.Equal(t, map[string]bool{"0@4 put:a:3 put:a:4": true, "1@4 put:a:4": true}, got)
	b.nothing(s)
}
