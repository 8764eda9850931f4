package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// catchUpWorkers is how many watchers are replayed for at a time.
	catchUpWorkers = 4
	// ringStep is about how many ring entries one step looks at.
	ringStep = 4096

	minRetry = 50 * time.Millisecond
	maxRetry = 5 * time.Second
)

// readyQueue is the watchers that are behind and whose consumers have made room,
// first come first served. A watcher is in it at most once: schedule and
// queue.take put it in, a worker takes it out and nobody else does.
type readyQueue struct {
	mu     sync.Mutex
	more   sync.Cond
	list   []*watcher
	closed bool
}

func (r *readyQueue) init() { r.more.L = &r.mu }

func (r *readyQueue) push(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.list = append(r.list, w)
		r.more.Signal()
	}
}

// pop waits for a watcher; nil says that the hub closes.
func (r *readyQueue) pop() *watcher {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.list) == 0 && !r.closed {
		r.more.Wait()
	}
	if r.closed {
		return nil
	}
	w := r.list[0]
	r.list[0] = nil
	r.list = r.list[1:]
	return w
}

func (r *readyQueue) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.list = true, nil
	r.more.Broadcast()
}

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
	from, to := w.next, h.frontier.Load()
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
		// What the ring gave can be read again, so it waits there if the budget
		// is used up. What the Source gave was costly: it goes over the budget,
		// by at most one call's events.
		if stopped := w.stream.enqueue(w, entries, to, !inRing); stopped != 0 {
			next = stopped
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	w.running = false
	if w.state != behind {
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

// advance does what can be done at once for a watcher that is behind: it cancels
// it if the history it needs is compacted, or lets it meet the ring if little is
// missing. It reports whether more work is needed. The hub's lock is held.
func (h *Hub) advance(w *watcher) (more bool) {
	switch {
	case w.state != behind:
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
// answer keeps the Source's contract.
func (h *Hub) readSource(w *watcher, from, to int64) (entries []*entry, next int64, err error) {
	events, next, err := h.src.Changes(w.stream.ctx, w.key, w.end, from, to)
	if err != nil {
		return nil, 0, err
	}
	if next <= from {
		return nil, 0, fmt.Errorf("watch: source read nothing from revision %d: it would go on from %d", from, next)
	}
	next = min(next, to+1)
	last := from
	for _, e := range events {
		rev := e.Record.ModRevision
		if rev < last || rev >= next {
			return nil, 0, fmt.Errorf("watch: source returned an event of revision %d behind %d, reading %d to %d", rev, last, from, next-1)
		}
		last = rev
		entries = append(entries, newEntry(e, false))
	}
	return w.filter(entries), next, nil
}

// sourceFailed cancels w if the error says that its history is gone, and else has
// it tried again later. The hub's lock is held.
func (h *Hub) sourceFailed(w *watcher, err error) {
	if c, ok := errors.AsType[*CompactedError](err); ok && c.Revision > w.next {
		h.endCompacted(w, max(c.Revision, h.compact))
		return
	}
	wait := retryAfter(w.failures)
	w.failures++
	h.reportSource("watch: reading history failed; trying again", err, wait)
	h.timers.set(&w.retry, time.Now().Add(wait))
}

// reportSource counts and logs an error of the Source.
func (h *Hub) reportSource(msg string, err error, wait time.Duration) {
	h.metrics.sourceErrors.Inc()
	h.log.Warn(msg, "error", err, "wait", wait)
}

// retryAfter is the time to wait after an error that followed failures others.
func retryAfter(failures int) time.Duration {
	return min(maxRetry, minRetry<<min(failures, 16))
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
