package watch

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxControls is how many answers to requests may be queued before further
	// requests wait for the consumer.
	maxControls = 4096
	// maxProgress is how many stream-wide progress responses may be queued
	// before further ones are merged into the last.
	maxProgress = 16
	// batchEvents and batchBytes bound how far responses of one watcher are
	// merged. One revision is never split, whatever its size.
	batchEvents = 1000
	batchBytes  = 1 << 20
	// leastQueueBytes is the budget of a watcher while all queues together hold too much.
	leastQueueBytes = 64 << 10
)

// queued counts the bytes of the events that are in queues, each event once. Safe for concurrent use.
type queued struct {
	bytes atomic.Int64
	most  int64
}

func (q *queued) add(entries []*entry) {
	for _, e := range entries {
		if e.queues.Add(1) == 1 {
			q.bytes.Add(int64(e.size))
		}
	}
}

func (q *queued) remove(entries []*entry) {
	for _, e := range entries {
		if e.queues.Add(-1) == 0 {
			q.bytes.Add(-int64(e.size))
		}
	}
}

type kind int8

const (
	controlKind  kind = iota // answers to requests, and cancellations
	eventKind                // events of one watcher
	notifyKind               // periodic progress of one watcher
	progressKind             // progress of the stream
)

// pending is a queued response.
type pending struct {
	next *pending
	kind kind
	w    *watcher // nil where none is concerned
	resp Response // without what is derived from entries

	entries []*entry
	size    int // bytes of entries
}

// queue is a stream's responses in the order in which they must be sent. Events of one
// watcher may overtake those of others: they join the response of that watcher that still waits,
// so that a stream of many watchers catches up with few responses. They do not overtake
// anything else, such as progress. Its
// length is bounded: events by the budget of each watcher, periodic progress by
// one a watcher, the rest by maxControls and maxProgress.
type queue struct {
	budget  *Config // of each watcher
	all     *queued // the events of all queues
	metrics *metrics
	ready   *readyQueue   // gets watchers whose events the consumer has taken
	wake    chan struct{} // has a token when the queue may have become non-empty

	mu         sync.Mutex
	closed     bool
	room       sync.Cond // controls went down, or closed
	head, tail *pending
	stops      int // responses so far that events do not overtake
	controls   int
	progresses int
	taken      *pending // out of the queue, but not all handed to the consumer yet
	sending    []*entry // what the consumer got last, and has in memory until it wants more
}

func (q *queue) init(budget *Config, all *queued, m *metrics, ready *readyQueue) {
	q.budget, q.all, q.metrics, q.ready = budget, all, m, ready
	q.wake = make(chan struct{}, 1)
	q.room.L = &q.mu
}

// append puts p at the end. The lock is held.
func (q *queue) append(p *pending) {
	if p.kind != eventKind {
		q.stops++
	}
	if q.tail == nil {
		q.head = p
	} else {
		q.tail.next = p
	}
	q.tail = p
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// enqueue queues events of w in responses with the header revision header, as far
// as w's budget reaches. It returns the first revision that found no room, 0 if
// all did. With force there is always room. Entries are whole revisions, in
// order; their slice is not changed, but kept.
func (q *queue) enqueue(w *watcher, entries []*entry, header int64, force bool) (stopped int64) {
	if len(entries) == 0 {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || w.gone {
		return 0
	}
	if w.notify {
		w.lastEvents = time.Now()
	}
	for i := 0; i < len(entries); {
		end := endOfRevision(entries, i)
		size := 0
		for _, e := range entries[i:end] {
			size += e.size
		}
		// While half of the budget is free a revision of any size is accepted.
		// Otherwise schedule and enqueue could disagree endlessly about whether
		// there is room.
		if !force && !q.drained(w) && (w.queued+end-i > q.budget.QueueEvents || w.bytes+size > q.budgetBytes()) {
			return entries[i].revision()
		}
		q.all.add(entries[i:end])
		q.appendEvents(w, entries[i:end:end], size, header)
		w.queued += end - i
		w.bytes += size
		q.metrics.pending.Add(float64(end - i))
		i = end
	}
	return 0
}

// appendEvents queues one revision, in w's last response if that is still queued and
// not large.
func (q *queue) appendEvents(w *watcher, entries []*entry, size int, header int64) {
	if p := w.last; p != nil && w.stops == q.stops &&
		len(p.entries)+len(entries) <= batchEvents && p.size+size <= batchBytes {
		p.entries = append(p.entries, entries...)
		p.size += size
		p.resp.Revision = max(p.resp.Revision, header)
		return
	}
	w.last, w.stops = &pending{
		kind: eventKind, w: w, entries: entries, size: size,
		resp: Response{WatchID: w.id, Revision: header, Fragment: w.fragment},
	}, q.stops
	q.append(w.last)
}

// control queues an answer to a request, or a cancellation.
func (q *queue) control(w *watcher, r Response) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.controls++
	q.append(&pending{kind: controlKind, w: w, resp: r})
}

// streamProgress queues a progress response for all of the stream.
func (q *queue) streamProgress(revision int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if q.progresses >= maxProgress {
		// The consumer reads slowly. This response replaces the newest one, which it
		// covers. Older ones stay, or none might ever arrive.
		seen := 0
		q.remove(func(p *pending) bool {
			if p.kind == progressKind {
				seen++
			}
			return p.kind == progressKind && seen == maxProgress
		})
		q.progresses--
	}
	q.progresses++
	q.append(&pending{kind: progressKind, resp: Response{WatchID: NoWatchID, Revision: revision}})
}

// watcherProgress queues the periodic progress of w, unless one is still queued,
// or events were queued after since; then it returns when they were.
func (q *queue) watcherProgress(w *watcher, revision int64, since time.Time) (lastEvents time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case w.lastEvents.After(since):
		return w.lastEvents
	case q.closed || w.gone || w.notified:
		return time.Time{}
	}
	w.notified = true
	q.append(&pending{kind: notifyKind, w: w, resp: Response{WatchID: w.id, Revision: revision}})
	return time.Time{}
}

// drop removes what is queued of w's events and progress, and lets nothing more
// be queued for it. Events that stand ahead of a progress response of the stream
// remain, as that speaks for w as well.
func (q *queue) drop(w *watcher) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.gone, w.last = true, nil
	if w.queued == 0 && !w.notified {
		return
	}
	progresses := q.progresses
	q.remove(func(p *pending) bool {
		if p.kind == progressKind {
			progresses--
		}
		if p.w != w || p.kind == controlKind || progresses > 0 {
			return false
		}
		w.queued -= len(p.entries)
		w.bytes -= p.size
		q.all.remove(p.entries)
		q.metrics.pending.Sub(float64(len(p.entries)))
		return true
	})
}

// remove takes out all responses that match. The lock is held.
func (q *queue) remove(match func(*pending) bool) {
	q.tail = nil
	for at := &q.head; *at != nil; {
		if match(*at) {
			*at = (*at).next
			continue
		}
		q.tail = *at
		at = &(*at).next
	}
}

// drained reports whether at least half of w's budget is free.
func (q *queue) drained(w *watcher) bool {
	return w.queued <= q.budget.QueueEvents/2 && w.bytes <= q.budgetBytes()/2
}

// budgetBytes returns the bytes that may be queued for one watcher. While all queues together hold too much,
// as if many clients do not read, these are few. So a queue that does not fit waits for its own consumer only.
func (q *queue) budgetBytes() int {
	if q.all.bytes.Load() > q.all.most {
		return min(q.budget.QueueBytes, leastQueueBytes)
	}
	return q.budget.QueueBytes
}

// next moves the first response out of the queue, nil if there is none.
func (q *queue) next() (*pending, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	q.all.remove(q.sending)
	q.sending = nil
	if q.taken != nil || q.head == nil {
		return q.taken, nil
	}
	p := q.head
	if q.head = p.next; q.head == nil {
		q.tail = nil
	}
	p.next = nil
	q.taken = p
	switch p.kind {
	case controlKind:
		q.controls--
		q.room.Signal()
	case progressKind:
		q.progresses--
	case notifyKind:
		p.w.notified = false
	case eventKind:
		n := len(p.entries)
		if p.w.last == p {
			p.w.last = nil
		}
		p.w.queued -= n
		p.w.bytes -= p.size
		q.metrics.pending.Sub(float64(n))
		if p.w.parked && q.drained(p.w) {
			p.w.parked = false
			q.ready.push(p.w)
		}
	}
	return p, nil
}

// handedOver notes that the consumer has got the first entries of the response that was taken: all but rest.
func (q *queue) handedOver(entries, rest []*entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
	case len(rest) > 0:
		q.sending, q.taken.entries = entries, rest
	default:
		q.sending, q.taken = entries, nil
	}
}

// waitForRoom waits until another answer may be queued.
func (q *queue) waitForRoom() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.controls >= maxControls && !q.closed {
		q.room.Wait()
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.closed = true
	for p := q.head; p != nil; p = p.next {
		q.metrics.pending.Sub(float64(len(p.entries)))
		q.all.remove(p.entries)
	}
	if q.taken != nil {
		q.all.remove(q.taken.entries)
	}
	q.all.remove(q.sending)
	q.head, q.tail, q.taken, q.sending = nil, nil, nil, nil
	q.room.Broadcast()
}
