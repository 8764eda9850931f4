package watch

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
)

// versions is a Source whose Versions a test provides.
type versions struct {
	*history
	calls int
	find  func(ctx context.Context, keys [][]byte, revs []int64) ([]*coder.Record, error)
}

func (v *versions) Versions(ctx context.Context, keys [][]byte, revs []int64) ([]*coder.Record, error) {
	v.mu.Lock()
	v.calls++
	v.mu.Unlock()
	return v.find(ctx, keys, revs)
}

func newVersionsBed(t *testing.T, cfg Config) (*bed, *versions) {
	b := newBed(t, cfg)
	src := &versions{history: b.src}
	src.find = b.src.Versions
	b.hub.src = src
	return b, src
}

func TestPrevComesFromThePublisherIfKnown(t *testing.T) {
	b, src := newVersionsBed(t, Config{RingEvents: 1})
	b.prev = true
	s := b.stream(key("a").withPrev(), key("b"))
	b.put("a", "b")
	b.put("a", "b")
	b.delete("a")
	b.put("a")
	b.expect(s, "0@1 created", "1@1 created")
	got := map[string]bool{}
	for range 2 {
		r := b.response(s)
		require.Equal(t, r.WatchID == 0, r.Prev != nil)
		got[brief(r)] = true
	}
	require.Equal(t, map[string]bool{"0@5 put:a:2 put:a:3<2 del:a:4<3 put:a:5": true, "1@3 put:b:2 put:b:3": true}, got)
	require.Zero(t, src.calls)
}

func TestPrevIsTakenFromTheRing(t *testing.T) {
	b, src := newVersionsBed(t, Config{})
	s := b.stream(key("a").withPrev())
	b.put("a", "b")
	b.put("b")
	b.put("a")
	b.delete("a")
	b.put("a")
	b.expect(s, "0@1 created", "0@6 put:a:2 put:a:4<2 del:a:5<4 put:a:6")
	require.Zero(t, src.calls)
}

func TestPrevIsFetchedWithOneCallAResponse(t *testing.T) {
	b, src := newVersionsBed(t, Config{RingEvents: 1})
	b.put("a", "b", "c")
	s := b.stream(span("a", "z").withPrev())
	b.expect(s, "0@2 created")
	b.put("a", "b")
	b.put("c", "d")
	b.expect(s, "0@4 put:a:3<2 put:b:3<2 put:c:4<2 put:d:4")
	require.Equal(t, 1, src.calls)
	b.compact(5)
	b.put("a")
	s.Create(Permitted, span("a", "z").withPrev().from(5))
	b.expect(s, "0@5 put:a:5", "1@5 created", "1@5 put:a:5") // both compacted
}

func TestPrevIsFetchedOnceForAllWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, src := newVersionsBed(t, Config{RingEvents: 1})
		b.put("a")
		b.put("b")
		release := make(chan struct{})
		src.find = func(ctx context.Context, keys [][]byte, revs []int64) ([]*coder.Record, error) {
			<-release
			return b.src.Versions(ctx, keys, revs)
		}
		var wg sync.WaitGroup
		got := make([]string, 100)
		for i := range got {
			s := b.stream(key("a").withPrev())
			b.expect(s, "0@3 created")
			wg.Go(func() { got[i] = b.next(s) })
		}
		b.put("a")
		synctest.Wait()
		close(release)
		wg.Wait()
		for _, g := range got {
			require.Equal(t, "0@4 put:a:4<2", g)
		}
		require.Equal(t, 1, src.calls)
		// Also for those that come later.
		late := b.stream(key("a").withPrev().from(4))
		b.expect(late, "0@4 created", "0@4 put:a:4<2")
		require.Equal(t, 1, src.calls)
		b.hub.Close()
	})
}

func TestPrevSurvivesACancelledNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, src := newVersionsBed(t, Config{RingEvents: 1})
		b.put("a")
		b.put("b")
		src.find = func(ctx context.Context, _ [][]byte, _ []int64) ([]*coder.Record, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		s, other := b.stream(key("a").withPrev()), b.stream(key("a").withPrev())
		b.expect(s, "0@3 created")
		b.expect(other, "0@3 created")
		b.put("a")
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error)
		go func() {
			_, err := s.Next(ctx)
			errs <- err
		}()
		synctest.Wait()
		// Somebody who waits for the same search must not fail with it.
		got := make(chan string)
		go func() { got <- b.next(other) }()
		synctest.Wait()
		src.find = b.src.Versions
		cancel()
		require.ErrorIs(t, <-errs, context.Canceled)
		require.Equal(t, "0@4 put:a:4<2", <-got)
		b.put("a")
		b.expect(s, "0@4 put:a:4<2", "0@5 put:a:5<4")
		require.Zero(t, b.metric("sqlbrain_watch_source_errors_total"))

		// Closing ends a search under way.
		src.find = func(ctx context.Context, _ [][]byte, _ []int64) ([]*coder.Record, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		b.expect(other, "0@5 put:a:5<4") // remembered
		b.put("c")
		b.put("a")
		go func() {
			_, err := other.Next(context.Background())
			errs <- err
		}()
		synctest.Wait()
		other.Close()
		require.ErrorIs(t, <-errs, ErrClosed)
		b.hub.Close()
	})
}

func TestATombstoneIsNoPreviousVersion(t *testing.T) {
	b, src := newVersionsBed(t, Config{RingEvents: 1})
	src.find = func(_ context.Context, keys [][]byte, revs []int64) ([]*coder.Record, error) {
		out := make([]*coder.Record, len(keys))
		for i := range keys {
			out[i] = &coder.Record{Key: keys[i], ModRevision: revs[i], Tombstone: true}
		}
		return out, nil
	}
	s := b.stream(key("a").withPrev())
	created := &Event{Record: &coder.Record{Key: []byte("a"), ModRevision: 9, CreateRevision: 9, Version: 1},
		PrevRevision: 5}
	b.hub.Publish([]*Event{created}, 9, func() {})
	b.expect(s, "0@1 created", "0@9 put:a:9")
	require.Zero(t, src.calls)
	odd := &Event{Record: &coder.Record{Key: []byte("a"), ModRevision: 10, CreateRevision: 9, Version: 2}, PrevRevision: 5}
	b.hub.Publish([]*Event{odd}, 10, func() {})
	b.expect(s, "0@10 put:a:10")
	require.Equal(t, 1, src.calls)
}

func TestRememberedVersionsAreBounded(t *testing.T) {
	b, src := newVersionsBed(t, Config{})
	b.hub.memo.maxBytes = 10 * 1024
	for i := range 100 {
		b.put(fmt.Sprint(i))
	}
	b.hub.mu.Lock()
	b.hub.ring.reset(b.hub.Revision() + 1)
	b.hub.mu.Unlock()
	s := b.stream(span("0", "a").withPrev())
	b.expect(s, "0@101 created")
	for i := range 100 {
		b.put(fmt.Sprint(i))
		require.NotNil(t, b.response(s).Prev[0])
	}
	require.Equal(t, 100, src.calls)
	require.LessOrEqual(t, b.hub.memo.bytes, b.hub.memo.maxBytes)
	kept := 0
	for _, e := range b.hub.ring.events() {
		if e.prev.Load() != nil {
			kept++
		}
	}
	require.Equal(t, len(b.hub.memo.list), kept)
	require.Positive(t, kept)
	require.Less(t, kept, 20)
	// Forgotten ones are found again.
	again := b.stream(span("0", "a").withPrev().from(102))
	b.expect(again, "0@201 created")
	for _, p := range b.response(again).Prev {
		require.NotNil(t, p)
	}
	require.Equal(t, 103, src.calls, "the first question is about few, because they may be large")
}

// TestResponsesAreBoundedByPreviousVersions: events without a value, of deletions, may have large ones.
func TestResponsesAreBoundedByPreviousVersions(t *testing.T) {
	const size, keys = 200 << 10, 40
	b, _ := newVersionsBed(t, Config{RingEvents: 1})
	put := func(names ...string) {
		for _, name := range names {
			b.publish(b.src.commit(false, change{name, strings.Repeat("x", size)}))
		}
	}
	var names []string
	for i := range keys {
		names = append(names, fmt.Sprintf("a%02d", i))
	}
	put(names...)
	s := b.stream(span("a", "b").withPrev())
	b.expect(s, "0@41 created")
	for _, name := range names[:keys/2] {
		b.delete(name)
	}
	var together []change
	for _, name := range names[keys/2:] {
		together = append(together, change{key: name})
	}
	b.publish(b.src.commit(false, together...))
	b.put("a")

	responses, got := 0, 0
	for want := int64(keys + 2); got < keys+1; responses++ {
		r := b.response(s)
		bytes := 0
		for i, e := range r.Events {
			require.Equal(t, want, e.Record.ModRevision)
			if last := i == len(r.Events)-1; last || r.Events[i+1].Record.ModRevision > want {
				want++
			}
			if r.Prev[i] != nil {
				bytes += len(r.Prev[i].Value)
			} else {
				require.Equal(t, "a", string(e.Record.Key))
			}
		}
		if r.Events[len(r.Events)-1].Record.ModRevision < keys+2+keys/2 {
			require.LessOrEqual(t, bytes, firstPrev*size)
		}
		got += len(r.Events)
	}
	require.Greater(t, responses, 2)
	require.Zero(t, s.watchers[0].queued)
	b.nothing(s)
	require.Zero(t, b.metric("sqlbrain_watch_queued_bytes"))
}

// At the compact revision the revision before cannot be read any more, however
// much of it is still in the ring.
func TestPrevAtTheCompactRevisionIsAbsent(t *testing.T) {
	b, _ := newVersionsBed(t, Config{})
	b.put("a")
	b.put("a")
	b.put("a")
	b.hub.Compact(3)
	s := b.stream(key("a").withPrev().from(3))
	b.expect(s, "0@4 created", "0@4 put:a:3 put:a:4<3")
}
