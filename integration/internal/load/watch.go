package load

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
)

// Watch follows a range starting at a revision, for as long as it can. etcd's client
// resumes a broken stream at its last revision, so a Watch survives any number of
// restarts of the server.
type Watch struct {
	Range  history.Range
	Start  int64
	PrevKV bool

	cancel context.CancelFunc
	done   chan struct{} // closed when nothing more comes

	mu     sync.Mutex
	stream history.Stream
	err    error
	grew   chan struct{} // closed and replaced when the stream grows
}

// Follow starts a Watch; Stop ends it.
func Follow(ctx context.Context, c *clientv3.Client, r history.Range, start int64, prevKV bool) *Watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &Watch{Range: r, Start: start, PrevKV: prevKV, cancel: cancel, done: make(chan struct{}),
		grew: make(chan struct{})}
	opts := []clientv3.OpOption{clientv3.WithRange(r.End), clientv3.WithRev(start)}
	if prevKV {
		opts = append(opts, clientv3.WithPrevKV())
	}
	answers := c.Watch(ctx, r.Key, opts...)
	go func() {
		defer close(w.done)
		for a := range answers {
			if !w.add(ctx, a) {
				return
			}
		}
	}()
	return w
}

func (w *Watch) add(ctx context.Context, a clientv3.WatchResponse) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.stream.Add(a); err != nil {
		if ctx.Err() == nil {
			w.err = err
		}
		return false
	}
	close(w.grew)
	w.grew = make(chan struct{})
	return true
}

// Await returns when the watch has seen the revision, with an error if it ended
// or ctx did. The revision must be one that has events in the range.
func (w *Watch) Await(ctx context.Context, revision int64) error {
	for {
		w.mu.Lock()
		last, grew := w.stream.Last(), w.grew
		w.mu.Unlock()
		if last >= revision {
			return nil
		}
		select {
		case <-grew:
		case <-w.done:
			w.mu.Lock()
			defer w.mu.Unlock()
			return fmt.Errorf("the watch of [%q, %q) ended after revision %d: %w", w.Range.Key, w.Range.End,
				w.stream.Last(), w.err)
		case <-ctx.Done():
			return fmt.Errorf("the watch of [%q, %q) has come to revision %d, not %d: %w", w.Range.Key, w.Range.End, last,
				revision, ctx.Err())
		}
	}
}

// Seen returns what the watch saw so far.
func (w *Watch) Seen() *history.Stream {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &history.Stream{Revisions: w.stream.Revisions[:len(w.stream.Revisions):len(w.stream.Revisions)]}
}

// Err returns what ended the watch, other than Stop.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Stop ends the watch and returns when it has.
func (w *Watch) Stop() {
	w.cancel()
	<-w.done
}
