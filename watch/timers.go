package watch

import (
	"container/heap"
	"time"
)

// timer calls fire, under the hub's lock, once its time has come.
type timer struct {
	due  time.Time
	fire func(now time.Time)
	pos  int // in timers, counted from 1; 0: not set
}

// timers is all set timers of a hub, soonest first: one goroutine and one runtime
// timer serve them all. It is guarded by the hub's lock.
type timers struct {
	heap timerHeap
	wake chan struct{} // has a token when the soonest may have changed
}

func newTimers() timers { return timers{wake: make(chan struct{}, 1)} }

// set sets t, which may be set already, to fire at due.
func (ts *timers) set(t *timer, due time.Time) {
	ts.stop(t)
	t.due = due
	heap.Push(&ts.heap, t)
	if t.pos == 1 {
		select {
		case ts.wake <- struct{}{}:
		default:
		}
	}
}

// stop unsets t, if it is set.
func (ts *timers) stop(t *timer) {
	if t.pos > 0 {
		heap.Remove(&ts.heap, t.pos-1)
	}
}

// runTimers fires timers until the hub closes.
func (h *Hub) runTimers() {
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		select {
		case <-alarm.C:
		case <-h.timers.wake:
		case <-h.ctx.Done():
			return
		}
		if due := h.fireTimers(); !due.IsZero() {
			alarm.Reset(time.Until(due))
		}
	}
}

// fireTimers fires what is due, and returns when the next is, zero for none.
func (h *Hub) fireTimers() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	ts := &h.timers
	for len(ts.heap) > 0 {
		t := ts.heap[0]
		if t.due.After(now) {
			return t.due
		}
		ts.stop(t)
		t.fire(now)
	}
	return time.Time{}
}

// timerHeap implements heap.Interface.
type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i+1, j+1
}

func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.pos = len(*h)
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.pos = 0
	return t
}
