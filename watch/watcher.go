package watch

import (
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
)

// state is where a watcher stands. Live and behind alternate; ended is final.
type state int8

const (
	// live watchers are in the index: all their events up to the hub's frontier
	// are queued.
	live state = iota
	// behind watchers are not: history is replayed for them from watcher.next.
	behind
	// ended watchers get nothing any more.
	ended
)

// watcher is one watch of a stream.
type watcher struct {
	stream          *Stream
	id              int64
	key, end        []byte
	start           int64 // as asked for: 0 is whatever comes after the creation
	noPut, noDelete bool
	prevKV          bool
	notify          bool // periodic progress
	fragment        bool

	// Guarded by the hub's lock.
	state    state
	next     int64    // behind: first revision not queued
	running  bool     // behind: a worker is replaying
	failures int      // errors of the Source in a row
	slot     int      // live: place in its watcherSet
	batch    []*entry // events of the revision being published
	progress timer    // next periodic progress
	retry    timer    // next attempt after an error of the Source

	// Guarded by the stream's lock.
	queued     int       // events in the queue
	bytes      int       // their bytes
	notified   bool      // a periodic progress response is in the queue
	parked     bool      // behind, and waits for the consumer to drain the queue
	gone       bool      // ended: nothing may be queued for it any more
	lastEvents time.Time // when events were queued last; kept for notify only
}

// wants reports whether the filters let e pass.
func (w *watcher) wants(e *Event) bool {
	if e.Type == Put {
		return !w.noPut
	}
	return !w.noDelete
}

// filter returns those of entries that are for w.
func (w *watcher) filter(entries []*entry) []*entry {
	var matching []*entry
	for _, e := range entries {
		if w.wants(e.Event) && coder.Contains(w.key, w.end, e.Record.Key) {
			matching = append(matching, e)
		}
	}
	return matching
}

// fallBehind takes a live watcher out of the index; its events from revision
// next on will be replayed. The hub's lock is held.
func (h *Hub) fallBehind(w *watcher, next int64) {
	h.index.remove(w)
	w.stream.unsynced++
	h.enterBehind(w, next)
	h.schedule(w)
}

func (h *Hub) enterBehind(w *watcher, next int64) {
	w.state, w.next = behind, next
	h.behind[w] = struct{}{}
	h.metrics.slow.Inc()
}

func (h *Hub) leaveBehind(w *watcher) {
	delete(h.behind, w)
	h.metrics.slow.Dec()
}

// meet queues what the ring, which covers w.next, still has for a watcher that
// is behind, and makes it live; if its queue is full first, it stays behind. The
// hub's lock is held, so no event can slip in between.
func (h *Hub) meet(w *watcher) {
	rest := w.filter(h.ring.since(w.next))
	if stopped := w.stream.enqueue(w, rest, h.frontier.Load(), false); stopped != 0 {
		w.next = stopped
		h.schedule(w)
		return
	}
	h.leaveBehind(w)
	w.state = live
	w.stream.unsynced--
	h.index.add(w)
}

// end ends w in whichever state it is; how its stream counts it and what the
// client is told is up to the caller. The hub's lock is held.
func (h *Hub) end(w *watcher) {
	switch w.state {
	case live:
		h.index.remove(w)
	case behind:
		h.leaveBehind(w)
	case ended:
		return
	}
	w.state = ended
	h.timers.stop(&w.progress)
	h.timers.stop(&w.retry)
	h.metrics.watchers.Dec()
}

// endCompacted cancels a watcher that is behind, because history it needs is
// gone. Like etcd, the stream keeps its id in use, and withholds progress, until
// the client cancels it. The hub's lock is held.
func (h *Hub) endCompacted(w *watcher, compact int64) {
	h.end(w)
	w.stream.control(w, Response{WatchID: w.id, Canceled: true, CompactRevision: compact})
}
