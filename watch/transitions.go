package watch

import "time"

// fallBehind takes a live watcher out of the index; its events from revision
// next on will be replayed. The caller must hold the hub's lock.
func (h *Hub) fallBehind(w *watcher, next int64) {
	h.index.remove(w)
	w.stream.unsynced++
	h.enterBehind(w, next)
	h.schedule(w)
}

func (h *Hub) enterBehind(w *watcher, next int64) {
	w.state, w.next = lagging, next
	h.lagging[w] = struct{}{}
	h.metrics.slow.Inc()
}

func (h *Hub) leaveBehind(w *watcher) {
	delete(h.lagging, w)
	h.metrics.slow.Dec()
}

// meet queues the remaining events of the ring, which covers w.next, for a lagging watcher and
// makes it live; if its queue is full first, it stays lagging. The caller must hold the hub's
// lock, so that no event can be published in between.
func (h *Hub) meet(w *watcher) {
	rest := w.filter(h.ring.since(w.next))
	if stopped := w.stream.enqueue(w, rest, h.visible.Load(), false); stopped != 0 {
		w.next = stopped
		h.schedule(w)
		return
	}
	h.leaveBehind(w)
	w.state = live
	w.stream.unsynced--
	h.index.add(w)
}

// after calls f after d with the hub's lock held, unless w has ended by then.
func (h *Hub) after(d time.Duration, w *watcher, f func()) *time.Timer {
	return time.AfterFunc(d, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if w.state != ended {
			f()
		}
	})
}

// end ends w in any state. The caller updates its stream and informs the client. It must hold
// the hub's lock.
func (h *Hub) end(w *watcher) {
	switch w.state {
	case live:
		h.index.remove(w)
	case lagging:
		h.leaveBehind(w)
	case ended:
		return
	}
	w.state = ended
	for _, t := range []**time.Timer{&w.progress, &w.retry} {
		if *t != nil {
			(*t).Stop()
			*t = nil
		}
	}
	h.metrics.watchers.Dec()
}

// endCompacted cancels a lagging watcher because history it needs is compacted. As in etcd, the
// stream keeps its id in use, and withholds progress, until the client cancels it. The caller
// must hold the hub's lock.
func (h *Hub) endCompacted(w *watcher, compact int64) {
	h.end(w)
	w.stream.control(w, Response{WatchID: w.id, Canceled: true, CompactRevision: compact})
}
