package watch

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
)

// Hub distributes events to watchers. Its methods may be called by any number of
// goroutines, Publish by one at a time.
//
// Locks are taken in the order Hub.mu, Stream.mu, readyQueue.mu. None is held
// while the Source is asked or a consumer waits.
type Hub struct {
	src      Source
	cfg      Config
	log      *slog.Logger
	metrics  *metrics
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup // catch-up workers
	ready    readyQueue     // watchers that a worker can get on with
	memo     prevMemo
	queued   queued // of all streams
	meetMost int    // most ring entries a watcher is caught up with under the lock

	visible atomic.Int64 // written under mu

	mu      sync.Mutex
	closed  bool
	compact int64
	ring    ring
	index   index
	streams map[*Stream]struct{}
	lagging map[*watcher]struct{}
	touched []*watcher // Publish's scratch
}

// NewHub returns a hub whose newest revision is visible, compacted at compact.
// It owns goroutines until Close.
func NewHub(src Source, visible, compact int64, cfg Config) *Hub {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Hub{
		src:      src,
		cfg:      cfg,
		log:      cfg.Logger,
		meetMost: 512,
		compact:  compact,
		ring:     ring{maxEvents: cfg.RingEvents, maxBytes: cfg.RingBytes, from: visible + 1},
		index:    newIndex(),
		streams:  make(map[*Stream]struct{}),
		lagging:  make(map[*watcher]struct{}),
	}
	h.memo.maxBytes = cfg.RingBytes / 4
	h.queued.most = int64(cfg.QueuedBytes)
	h.metrics = newMetrics(h)
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.visible.Store(visible)
	h.ready.init()
	for range catchUpWorkers {
		h.wg.Go(h.runCatchUp)
	}
	return h
}

// Publish hands the hub all events up to and including the revision visible
// that it has not seen, in order. One caller at a time. It never blocks on
// watchers or on the source. Events the hub has seen are passed over. The events
// must be in the Source by now: a slow watcher may read them there.
//
// Publish first calls show, which makes the revision readable, and creates no
// watcher in between: one without a start revision gets no event that its client
// may have read already.
func (h *Hub) Publish(events []*Event, visible int64, show func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	show()
	if h.closed {
		return
	}
	old := h.visible.Load()
	for len(events) > 0 && events[0].Record.ModRevision <= old {
		events = events[1:]
	}
	if visible = max(visible, old); !inOrder(events, visible) {
		h.log.Error("watch: events were published out of order; watchers read them from the store",
			"after", old, "visible", visible, "events", len(events))
		h.distrust(old, visible)
		return
	}
	for len(events) > 0 {
		rev, n := events[0].Record.ModRevision, 1
		for n < len(events) && events[n].Record.ModRevision == rev {
			n++
		}
		// Each revision has its own slice, so that a queue that keeps it does not
		// keep events of other revisions in memory.
		entries := make([]*entry, n)
		for i, e := range events[:n] {
			entries[i] = newEntry(e, true)
		}
		h.ring.add(entries)
		h.distribute(rev, entries)
		events = events[n:]
	}
	h.visible.Store(visible)
}

func inOrder(events []*Event, visible int64) bool {
	for i, e := range events {
		rev := e.Record.ModRevision
		if rev > visible || i > 0 && rev < events[i-1].Record.ModRevision {
			return false
		}
	}
	return true
}

// distribute queues the events of one revision for the live watchers they match.
func (h *Hub) distribute(rev int64, entries []*entry) {
	touched := h.touched[:0]
	for i, e := range entries {
		h.index.visit(e.Record.Key, func(w *watcher) {
			switch {
			case w.start > rev || !w.wants(e.Event):
			case w.batch == nil:
				touched = append(touched, w)
				// Shared by all watchers that get just this event; the capped
				// slice is copied if one gets more.
				w.batch = entries[i : i+1 : i+1]
			default:
				w.batch = append(w.batch, e)
			}
		})
	}
	for i, w := range touched {
		if w.stream.enqueue(w, w.batch, rev, false) != 0 {
			h.fallBehind(w, rev)
		}
		w.batch, touched[i] = nil, nil
	}
	h.touched = touched[:0]
}

// distrust moves the visible revision without knowing the events in between. All watchers read those
// from the Source, so that none misses them.
func (h *Hub) distrust(old, visible int64) {
	h.ring.reset(visible + 1)
	h.visible.Store(visible)
	for s := range h.streams {
		for _, w := range s.watchers {
			if w.state == live {
				h.fallBehind(w, max(old+1, w.start))
			}
		}
	}
}

// Jump moves the hub to the revision visible without the events up to there:
// watchers read them from the Source, which may say that they are gone. It calls
// show as Publish does.
func (h *Hub) Jump(visible int64, show func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	show()
	if old := h.visible.Load(); !h.closed && visible > old {
		h.distrust(old, visible)
	}
}

// Compact raises the compact revision to rev. It cancels lagging watchers that still need
// history below rev; others do not notice.
func (h *Hub) Compact(rev int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || rev <= h.compact {
		return
	}
	h.compact = rev
	for w := range h.lagging {
		// A worker that is replaying sees the new compact revision itself: what
		// it has read by then is whole, and is delivered first.
		if !w.running && h.compacted(w) {
			h.endCompacted(w, rev)
		}
	}
}

// compacted reports whether history that w needs is gone. Revisions above the visible revision are not
// history yet, however high the compact revision. The caller must hold the hub's lock.
func (h *Hub) compacted(w *watcher) bool {
	return w.next < h.compact && w.next <= h.visible.Load()
}

// Revision is the newest revision published.
func (h *Hub) Revision() int64 { return h.visible.Load() }

// Close ends all streams, drops queued responses and waits for the hub's goroutines. It may be
// called more than once.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for s := range h.streams {
		s.close()
	}
	h.ring.reset(h.visible.Load() + 1)
	h.mu.Unlock()
	h.cancel()
	h.ready.close()
	h.wg.Wait()
}
