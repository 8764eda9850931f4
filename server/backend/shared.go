package backend

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// shared lets many callers share one question. A caller gets an answer that was
// asked for after it came: while a question is under way, those who come wait for
// the next one.
type shared[T any] struct {
	timeout time.Duration // bound on one question
	ask     func(ctx context.Context) (T, error)

	life context.Context // of the questions; ends with close
	end  context.CancelFunc
	runs sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	running bool
	next    *question[T] // asked when the one under way is answered
}

type question[T any] struct {
	done   chan struct{}
	answer T
	err    error
}

func newShared[T any](timeout time.Duration, ask func(ctx context.Context) (T, error)) *shared[T] {
	s := &shared[T]{timeout: timeout, ask: ask}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// close ends the question under way; there are no others any more.
func (s *shared[T]) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.runs.Wait()
}

// get returns an answer asked for after the call, or ctx's error; ErrNotServing
// once it is closed.
func (s *shared[T]) get(ctx context.Context) (answer T, err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return answer, fmt.Errorf("%w: closed", ErrNotServing)
	}
	if s.next == nil {
		s.next = &question[T]{done: make(chan struct{})}
	}
	q := s.next
	if !s.running {
		s.running = true
		// It goes on only while somebody has come meanwhile.
		s.runs.Go(s.run)
	}
	s.mu.Unlock()
	select {
	case <-q.done:
		return q.answer, q.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

func (s *shared[T]) run() {
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
		bounded, cancel := context.WithTimeout(s.life, s.timeout)
		q.answer, q.err = s.ask(bounded)
		cancel()
		close(q.done)
	}
}
