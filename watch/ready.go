package watch

import "sync"

// readyQueue holds the lagging watchers whose consumers have made room, in order of arrival. A
// watcher is in it at most once: only schedule and queue.take add it, and only a worker removes it.
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
