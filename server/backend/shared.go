package backend

import (
	"context"
	"sync"
	"time"
)

// shared lets many callers share one question. A caller gets an answer that was
// asked for after it came: while a question is under way, those who come wait for
// the next one.
type shared[T any] struct {
	timeout time.Duration // bound on one question
	ask     func(ctx context.Context) (T, error)

	mu      sync.Mutex
	running bool
	next    *question[T] // asked when the one under way is answered
}

type question[T any] struct {
	done   chan struct{}
	answer T
	err    error
}

func newShared[T any](timeout time.Duration, ask func(ctx context.Context) (T, error)) *shared[T] {
	return &shared[T]{timeout: timeout, ask: ask}
}

// get returns an answer asked for after the call, or ctx's error.
func (s *shared[T]) get(ctx context.Context) (answer T, err error) {
	s.mu.Lock()
	if s.next == nil {
		s.next = &question[T]{done: make(chan struct{})}
	}
	q := s.next
	if !s.running {
		s.running = true
		// It ends by itself: the questions are bounded, and it goes on only
		// while somebody has come meanwhile.
		go s.run(context.WithoutCancel(ctx))
	}
	s.mu.Unlock()
	select {
	case <-q.done:
		return q.answer, q.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

func (s *shared[T]) run(ctx context.Context) {
	for {
		s.mu.Lock()
		q := s.next
		s.next = nil
		if q == nil {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		bounded, cancel := context.WithTimeout(ctx, s.timeout)
		q.answer, q.err = s.ask(bounded)
		cancel()
		close(q.done)
	}
}
