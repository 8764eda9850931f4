package watch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
)

// stub is a Source whose Changes a test provides.
type stub struct {
	*history
	changes func(ctx context.Context, from, to int64) ([]*Event, int64, error)
}

func (s *stub) Changes(ctx context.Context, key, end []byte, from, to int64, atMost int) ([]*Event, int64, error) {
	if s.changes == nil {
		return s.history.Changes(ctx, key, end, from, to, atMost)
	}
	return s.changes(ctx, from, to)
}

// newStubBed is a bed whose watchers that start in the past need the Source.
func newStubBed(t *testing.T, cfg Config) (*bed, *stub) {
	cfg.RingEvents = 1
	b := newBed(t, cfg)
	src := &stub{history: b.src}
	b.hub.src = src
	return b, src
}

// revisions reads the responses of a stream with one watcher until it has n
// events.
func (b *bed) revisions(s *Stream, n int) []int64 {
	b.t.Helper()
	var revs []int64
	for len(revs) < n {
		for _, e := range b.response(s).Events {
			revs = append(revs, e.Record.ModRevision)
		}
	}
	return revs
}

func upTo(from, to int64) []int64 {
	var revs []int64
	for ; from <= to; from++ {
		revs = append(revs, from)
	}
	return revs
}

func TestEndOfRevision(t *testing.T) {
	var entries []*entry
	for _, rev := range []int64{2, 2, 2, 3} {
		entries = append(entries, newEntry(&Event{Record: &coder.Record{ModRevision: rev}}, false))
	}
	for i, want := range []int{3, 3, 3, 4} {
		require.Equal(t, want, endOfRevision(entries, i))
	}
}

func TestASlowWatcherCatchesUp(t *testing.T) {
	for name, cfg := range map[string]Config{
		"from the ring":                {QueueEvents: 3},
		"from the source":              {QueueEvents: 3, RingEvents: 1},
		"from the ring, few bytes":     {QueueBytes: 2000},
		"from the source, few bytes":   {QueueBytes: 2000, RingBytes: 1000},
		"from the source, not at once": {QueueEvents: 3, RingEvents: 2, ProgressInterval: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a lost event is waited for in no time
				b := newBed(t, cfg)
				b.hub.meetMost = 2
				b.src.step = 7
				slow, fast := b.stream(key("a")), b.stream(key("a"))
				b.expect(slow, "0@1 created")
				b.expect(fast, "0@1 created")
				for rev := int64(2); rev <= 101; rev++ {
					b.put("a")
					require.Equal(t, []int64{rev}, b.revisions(fast, 1))
				}
				require.EqualValues(t, 1, b.metric("etcd_debugging_mvcc_slow_watcher_total"))
				require.Equal(t, upTo(2, 101), b.revisions(slow, 100))
				b.put("a")
				require.Equal(t, []int64{102}, b.revisions(slow, 1))
			})
		})
	}
}

func TestStalledConsumersDoNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Config{QueueEvents: 4, RingEvents: 8})
		b.hub.meetMost = 1
		b.src.step = 2
		for range 200 {
			b.put("a")
		}
		var stalled []*Stream
		for range 5 * catchUpWorkers {
			stalled = append(stalled, b.stream(key("a").from(2), key("a").from(150), key("a")))
		}
		synctest.Wait()
		// Everybody has come to rest with full queues: workers wait for work, not
		// for consumers, and nobody polls.
		b.src.mu.Lock()
		calls := b.src.changesCalls
		b.src.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		b.src.mu.Lock()
		require.Equal(t, calls, b.src.changesCalls)
		b.src.mu.Unlock()
		for _, s := range stalled {
			s.mu.Lock()
			for _, id := range []int64{0, 1} {
				require.LessOrEqual(t, s.watchers[id].queued, 4+2)
			}
			s.mu.Unlock()
		}
		// And so a newcomer is served.
		s := b.stream(key("a").from(2))
		b.expect(s, "0@201 created")
		require.Equal(t, upTo(2, 201), b.revisions(s, 200))
		b.put("a")
		require.Equal(t, []int64{202}, b.revisions(s, 1))
		b.hub.Close()
	})
}

// A client may watch very many keys from old revisions. Another one's watcher has its turn after one of theirs.
func TestAStreamWithManyLaggingWatchersDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, src := newStubBed(t, Config{})
		const revisions, read = 10, 10 * time.Millisecond
		for range revisions {
			b.put("a")
		}
		b.put("b")
		src.changes = func(_ context.Context, from, _ int64) ([]*Event, int64, error) {
			time.Sleep(read)
			return nil, from + 1, nil
		}
		var many []CreateRequest
		for range 1000 {
			many = append(many, key("none").from(2))
		}
		b.stream(many...)
		time.Sleep(read)
		began := time.Now()
		s := b.stream(key("b").from(2))
		b.expect(s, "0@12 created", "0@12 put:b:12")
		require.LessOrEqual(t, time.Since(began), 2*revisions*read)
		b.hub.Close()
	})
}

func TestHangingSourceDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, src := newStubBed(t, Config{})
		b.put("a")
		b.put("a")
		src.changes = func(ctx context.Context, _, _ int64) ([]*Event, int64, error) {
			<-ctx.Done()
			return nil, 0, ctx.Err()
		}
		var hanging []*Stream
		for range catchUpWorkers {
			hanging = append(hanging, b.stream(key("a").from(2)))
		}
		synctest.Wait()
		s := b.stream(key("a"), key("a").from(3)) // the ring has 3
		b.expect(s, "0@3 created", "1@3 created", "1@3 put:a:3")
		b.put("a")
		got := map[string]bool{b.next(s): true, b.next(s): true}
		require.Equal(t, map[string]bool{"0@4 put:a:4": true, "1@4 put:a:4": true}, got)
		// Closing one's stream frees its worker.
		src.changes = nil // for calls to come
		late := b.stream(key("a").from(2))
		synctest.Wait()
		b.expect(late, "0@4 created")
		b.nothing(late)
		hanging[0].Close()
		b.expect(late, "0@4 put:a:2 put:a:3 put:a:4")
		b.hub.Close()
	})
}

func TestSourceErrorsAreRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, src := newStubBed(t, Config{})
		for range 5 {
			b.put("a")
		}
		calls := 0
		src.changes = func(context.Context, int64, int64) ([]*Event, int64, error) {
			calls++
			return nil, 0, errFlaky
		}
		s := b.stream(key("a").from(2))
		b.expect(s, "0@6 created")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Greater(t, calls, 10)
		require.Less(t, calls, 30)
		require.EqualValues(t, calls, b.metric("sqlbrain_watch_source_errors_total"))
		src.changes = nil
		b.expect(s, "0@6 put:a:2 put:a:3 put:a:4 put:a:5 put:a:6")
		b.hub.Close()
	})
}

func TestSourceAnswersThatBreakTheContractAreRejected(t *testing.T) {
	for name, changes := range map[string]func(h *history, from, to int64) ([]*Event, int64, error){
		"no progress":      func(_ *history, from, _ int64) ([]*Event, int64, error) { return nil, from, nil },
		"event below from": func(h *history, _, to int64) ([]*Event, int64, error) { return h.events[:1], to + 1, nil },
		"event above next": func(h *history, from, _ int64) ([]*Event, int64, error) { return h.events[3:4], from + 1, nil },
		"not in order": func(h *history, _, to int64) ([]*Event, int64, error) {
			return []*Event{h.events[3], h.events[2]}, to + 1, nil
		},
		"compacted, but not at from": func(_ *history, from, _ int64) ([]*Event, int64, error) {
			return nil, 0, &CompactedError{Revision: from}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, src := newStubBed(t, Config{})
				for range 5 {
					b.put("a")
				}
				left := 3
				src.changes = func(ctx context.Context, from, to int64) ([]*Event, int64, error) {
					if left--; left < 0 {
						return src.history.Changes(ctx, []byte("a"), nil, from, to, 1<<20)
					}
					return changes(b.src, from, to)
				}
				s := b.stream(key("a").from(3))
				b.expect(s, "0@6 created", "0@6 put:a:3 put:a:4 put:a:5 put:a:6")
				require.EqualValues(t, 3, b.metric("sqlbrain_watch_source_errors_total"))
				b.hub.Close()
			})
		})
	}
}

func TestEventsReadFromTheSourceAreNotReadAgain(t *testing.T) {
	b, _ := newStubBed(t, Config{QueueEvents: 2})
	for range 50 {
		b.put("a")
	}
	s := b.stream(key("a").from(2))
	b.expect(s, "0@51 created")
	require.Equal(t, upTo(2, 51), b.revisions(s, 50))
	require.Equal(t, 1, b.src.changesCalls)
}

func TestBackoffStartsAnewAfterASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, src := newStubBed(t, Config{})
		for range 50 {
			b.put("a")
		}
		b.src.step = 1
		calls := 0
		src.changes = func(ctx context.Context, from, to int64) ([]*Event, int64, error) {
			if calls++; calls%2 == 1 {
				return nil, 0, errFlaky
			}
			return src.history.Changes(ctx, []byte("a"), nil, from, to, 1<<20)
		}
		began := time.Now()
		s := b.stream(key("a").from(2))
		b.expect(s, "0@51 created")
		require.Equal(t, upTo(2, 51), b.revisions(s, 50))
		require.LessOrEqual(t, time.Since(began), 49*reading.Min) // in fake time; the ring has the last
		b.hub.Close()
	})
}

func TestCompactCancelsOnlyWatchersThatNeedCompactedHistory(t *testing.T) {
	b := newBed(t, Config{QueueEvents: 2})
	late, soon, synced, future := b.stream(key("a")), b.stream(key("a")), b.stream(key("a")), b.stream(key("a").from(20))
	for _, s := range []*Stream{late, soon, synced, future} {
		b.expect(s, "0@1 created")
	}
	for range 3 {
		b.put("a")
	}
	require.Equal(t, upTo(2, 4), b.revisions(soon, 3)) // late wants 4 next
	require.Equal(t, upTo(2, 4), b.revisions(synced, 3))
	for range 2 {
		b.put("a")
	}
	require.Equal(t, upTo(5, 6), b.revisions(synced, 2))
	b.put("a") // soon wants 7 next
	b.compact(7)
	b.compact(3) // never goes back
	b.expect(late, "0@3 put:a:2 put:a:3", "0@0 canceled compact=7")
	b.expect(soon, "0@6 put:a:5 put:a:6", "0@7 put:a:7")
	b.expect(synced, "0@7 put:a:7")
	b.expect(b.stream(key("a").from(6)), "0@7 created", "0@0 canceled compact=7") // although the ring has 6
	b.expect(b.stream(key("a").from(7)), "0@7 created", "0@7 put:a:7")
	b.put("a")
	b.expect(soon, "0@8 put:a:8")
	b.expect(synced, "0@8 put:a:8")
	b.nothing(late)
	b.nothing(future)
	// A compact revision above the visible revision takes nothing from those that need
	// only what is yet to come.
	b.compact(15)
	b.put("a")
	b.expect(synced, "0@9 put:a:9")
}

func TestCancelWhileHistoryIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, src := newStubBed(t, Config{})
		for range 9 {
			b.put("a")
		}
		release := make(chan struct{})
		src.changes = func(ctx context.Context, from, to int64) ([]*Event, int64, error) {
			<-release
			return src.history.Changes(ctx, []byte("a"), nil, from, to, 1<<20)
		}
		s := b.stream(key("a").from(2))
		synctest.Wait()
		s.Cancel(0)
		s.Create(Permitted, key("a"))
		close(release)
		synctest.Wait()
		b.expect(s, "0@10 created", "0@10 canceled", "1@10 created")
		b.nothing(s)
		b.hub.Close()
	})
}

// TestQueuesTogetherAreBounded: many watchers that start in the past, or that events come for, and whose clients do
// not read, hold little each. All get every event once they read.
func TestQueuesTogetherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watchers, revisions, size = 50, 100, 20 << 10
		b := newBed(t, Config{RingEvents: 10, QueueBytes: 1 << 20, QueuedBytes: 2 << 20})
		put := func() {
			for range revisions {
				b.publish(b.src.commit(false, change{"a", strings.Repeat("x", size)}))
			}
		}
		put()
		var streams []*Stream
		for i := range watchers {
			r := key("a").from(2)
			if i%2 == 0 {
				r = key("a").from(revisions + 2)
			}
			streams = append(streams, b.stream(r))
		}
		synctest.Wait()
		put()
		synctest.Wait()
		const least = leastQueueBytes + 2*size // a revision more than fits, and overhead
		require.Greater(t, b.metric("sqlbrain_watch_queued_bytes"), float64(1<<20), "events are queued")
		require.LessOrEqual(t, b.metric("sqlbrain_watch_queued_bytes"), float64(2<<20+catchUpWorkers<<20+watchers*least))

		for i, s := range streams {
			from := int64(2)
			if i%2 == 0 {
				from = revisions + 2
			}
			require.Equal(t, fmt.Sprint("0@", revisions+1, " created"), b.next(s))
			require.Equal(t, upTo(from, 2*revisions+1), b.revisions(s, int(2*revisions+2-from)))
		}
		for _, s := range streams {
			s.Close()
		}
		require.Zero(t, b.metric("sqlbrain_watch_queued_bytes"))
		b.hub.Close()
	})
}

func TestQueuesAreBounded(t *testing.T) {
	b := newBed(t, Config{QueueEvents: 10, QueueBytes: 4 << 10})
	many, large := b.stream(key("a")), b.stream(key("b"))
	for range 100 {
		b.put("a")
		b.publish(b.src.commit(false, change{"b", strings.Repeat("x", 1<<10)}))
	}
	b.hub.mu.Lock()
	require.Equal(t, 10, many.watchers[0].queued)
	require.Equal(t, 3, large.watchers[0].queued)
	b.hub.mu.Unlock()
	require.EqualValues(t, 13, b.metric("etcd_debugging_mvcc_pending_events_total"))
	many.Cancel(0)
	large.Close()
	require.EqualValues(t, 0, b.metric("etcd_debugging_mvcc_pending_events_total"))
}

func TestMetricsComeBackToZero(t *testing.T) {
	b := newBed(t, Config{QueueEvents: 1})
	s := b.stream(key("a"), key("b"))
	other := b.stream(key("a"))
	for range 5 {
		b.put("a")
	}
	require.EqualValues(t, 2, b.metric("etcd_debugging_mvcc_watch_stream_total"))
	require.EqualValues(t, 3, b.metric("etcd_debugging_mvcc_watcher_total"))
	require.EqualValues(t, 2, b.metric("etcd_debugging_mvcc_slow_watcher_total"))
	require.EqualValues(t, 2, b.metric("etcd_debugging_mvcc_pending_events_total"))
	b.expect(s, "0@1 created", "1@1 created", "0@2 put:a:2")
	require.EqualValues(t, 1, b.metric("etcd_debugging_mvcc_events_total"))
	require.Equal(t, upTo(3, 6), b.revisions(s, 4)) // it has caught up; the other one never does
	b.compact(6)
	other.Close()
	s.Cancel(0)
	s.Cancel(1)
	s.Close()
	for _, name := range []string{"watch_stream_total", "watcher_total", "slow_watcher_total", "pending_events_total"} {
		require.Zero(t, b.metric("etcd_debugging_mvcc_"+name), name)
	}
	require.EqualValues(t, 5, b.metric("sqlbrain_watch_ring_events"))
	require.EqualValues(t, b.hub.ring.bytes, b.metric("sqlbrain_watch_ring_bytes"))
	require.Positive(t, b.metric("sqlbrain_watch_catchup_total"))
}
