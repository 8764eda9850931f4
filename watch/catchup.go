package watch

import (
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

const (
	// catchUpWorkers is how many watchers are replayed for at a time.
	catchUpWorkers = 4
	// ringStep is about how many ring entries one step looks at.
	ringStep = 4096
)

// reading spaces out attempts to read from a Source that fails.
var reading = retry.Backoff{Min: 50 * time.Millisecond, Max: 5 * time.Second}

// runCatchUp is a catch-up worker. It does one bounded step for a watcher and
// then takes the next; it never waits for a consumer.
func (h *Hub) runCatchUp() {
	for w := h.ready.pop(); w != nil; w = h.ready.pop() {
		h.catchUp(w)
	}
}

// catchUp does one step of replaying for w.
func (h *Hub) catchUp(w *watcher) {
	h.mu.Lock()
	if !h.advance(w) {
		h.mu.Unlock()
		return
	}
	// Too much to do it under the lock.
	w.running = true
	from, to := w.next, h.visible.Load()
	var entries []*entry
	var next int64
	inRing := h.ring.covers(from)
	if inRing {
		if entries, next = h.ring.read(from, ringStep); next == 0 {
			next = to + 1
		}
	}
	h.mu.Unlock()

	var err error
	if inRing {
		h.metrics.catchUpRing.Inc()
		entries = w.filter(entries)
	} else {
		h.metrics.catchUpStore.Inc()
		entries, next, err = h.readSource(w, from, to)
	}
	if err == nil {
		// Events from the ring can be read again, so they stay there once the budget
		// is used up. Reading the Source is costly, so its events may exceed the
		// budget, by at most those of one call.
		if stopped := w.stream.enqueue(w, entries, to, !inRing); stopped != 0 {
			next = stopped
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	w.running = false
	if w.state != lagging {
		return
	}
	if err != nil {
		h.sourceFailed(w, err)
		return
	}
	w.failures = 0
	w.next = next
	h.schedule(w)
}

// advance does what can be done at once for a lagging watcher: it cancels the watcher if the
// history it needs is compacted, or makes it live if little is missing. It reports whether more
// work is needed. The caller must hold the hub's lock.
func (h *Hub) advance(w *watcher) (more bool) {
	switch {
	case w.state != lagging:
		return false
	case h.compacted(w):
		h.endCompacted(w, h.compact)
		return false
	case h.ring.covers(w.next) && len(h.ring.since(w.next)) <= h.meetMost:
		h.metrics.catchUpRing.Inc()
		h.meet(w)
		return false
	}
	return true
}

// readSource asks the Source for w's events in [from, to], and checks that the
// answer follows the Source's contract.
func (h *Hub) readSource(w *watcher, from, to int64) (entries []*entry, next int64, err error) {
	events, next, err := h.src.Changes(w.stream.ctx, w.key, w.end, from, to, w.stream.budgetBytes())
	if err != nil {
		return nil, 0, err
	}
	if next <= from {
		return nil, 0, fmt.Errorf("watch: source read nothing from revision %d: it would continue at %d", from, next)
	}
	next = min(next, to+1)
	last := from
	for _, e := range events {
		rev := e.Record.ModRevision
		if rev < last || rev >= next {
			return nil, 0, fmt.Errorf("watch: source returned an event of revision %d after %d, reading %d to %d", rev, last,
				from, next-1)
		}
		last = rev
		entries = append(entries, newEntry(e, false))
	}
	return w.filter(entries), next, nil
}

// sourceFailed cancels w if its history was compacted, and else sets a timer for another
// attempt. The caller must hold the hub's lock.
func (h *Hub) sourceFailed(w *watcher, err error) {
	if c, ok := errors.AsType[*CompactedError](err); ok && c.Revision > w.next {
		h.endCompacted(w, max(c.Revision, h.compact))
		return
	}
	w.failures++
	wait := reading.Pause(w.failures)
	h.reportSource("watch: reading history failed; trying again", err, wait)
	w.retry = h.after(wait, w, func() {
		w.retry = nil
		h.schedule(w)
	})
}

// reportSource counts and logs an error of the Source.
func (h *Hub) reportSource(msg string, err error, wait time.Duration) {
	h.metrics.sourceErrors.Inc()
	h.log.Warn(msg, "error", err, "wait", wait)
}

// schedule has a worker replay history for w, which lags: now if its queue is half empty, else
// as soon as the consumer has drained half of it. The caller must hold the hub's lock.
func (h *Hub) schedule(w *watcher) {
	if w.state != lagging {
		return
	}
	q := &w.stream.queue
	q.mu.Lock()
	w.parked = !q.drained(w)
	parked := w.parked
	q.mu.Unlock()
	if !parked {
		h.ready.push(w)
	}
}
