package watch

import "sync"

// readyQueue holds the lagging watchers whose consumers have made room: those of a stream in order of arrival, and the
// streams in turn, so that a stream with many of them does not delay others. A watcher is in it at most once: only
// schedule and queue.take add it, and only a worker removes it.
type readyQueue struct {
	mu     sync.Mutex
	more   sync.Cond
	list   []*Stream // those that have watchers in Stream.waiting
	closed bool
}

func (r *readyQueue) init() { r.more.L = &r.mu }

func (r *readyQueue) push(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	s := w.stream
	if s.waiting = append(s.waiting, w); len(s.waiting) == 1 {
		r.list = append(r.list, s)
	}
	r.more.Signal()
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
	s := r.list[0]
	r.list[0] = nil
	r.list = r.list[1:]
	w := s.waiting[0]
	s.waiting[0] = nil
	if s.waiting = s.waiting[1:]; len(s.waiting) > 0 {
		r.list = append(r.list, s)
	}
	return w
}

func (r *readyQueue) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.list = true, nil
	r.more.Broadcast()
}
