package watch

import (
	"context"
	"fmt"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// lookup is the search for the version an event replaced. The goroutine that puts it on the
// entry searches; all others wait for done.
type lookup struct {
	done   chan struct{}
	record *coder.Record // valid after done; nil if it no longer exists
	err    error         // valid after done; then the search must be made anew
}

// firstPrev and prevAtATime are how many previous versions the first question of a response to the Source is about,
// and the most that one is about. Before that their sizes are not known.
const (
	firstPrev   = 16
	prevAtATime = 256
)

// previous returns the versions that the first of entries replaced, nil where there was none or it is
// compacted: those of whole revisions that have batchBytes, at least one. It fetches those that are not in
// memory from the Source, unless another watcher's consumer has fetched them or is doing so. The error is
// ctx's or ErrClosed.
func (s *Stream) previous(ctx context.Context, entries []*entry) ([]*coder.Record, error) {
	// The Source must not be kept busy for a stream that was closed.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()

	prev := make([]*coder.Record, 0, len(entries))
	pages := NewPages(firstPrev, prevAtATime, batchBytes)
	for len(prev) < len(entries) {
		end := len(entries)
		if pages.Full() {
			if end = endOfRevision(entries, len(prev)-1); end == len(prev) {
				break
			}
		}
		some, err := s.previousOf(ctx, entries[len(prev):min(end, len(prev)+pages.Next())])
		if err != nil {
			return nil, err
		}
		for _, r := range some {
			if r != nil {
				pages.Add(len(r.Key) + len(r.Value))
			}
		}
		prev = append(prev, some...)
	}
	return prev, nil
}

// previousOf is previous of all entries.
func (s *Stream) previousOf(ctx context.Context, entries []*entry) ([]*coder.Record, error) {
	h := s.hub
	h.mu.Lock()
	compacted := h.compact
	h.mu.Unlock()
	prev := make([]*coder.Record, len(entries))
	var missing []int
	for i, e := range entries {
		if e.Record.ModRevision <= compacted {
			continue // the revision before is compacted, though its rows may still be there
		}
		if e.Prev != nil {
			prev[i] = e.Prev
		} else if !e.IsCreate() && e.PrevRevision > 0 {
			missing = append(missing, i)
		}
	}
	for failures := 1; len(missing) > 0; {
		var err error
		if missing, err = h.lookUp(ctx, entries, prev, missing); err == nil {
			continue
		}
		if ctx.Err() == nil {
			d := reading.Pause(failures)
			failures++
			h.reportSource("watch: reading previous versions failed; trying again", err, d)
			err = retry.Sleep(ctx, d)
		}
		switch {
		case s.ctx.Err() != nil:
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, err
		}
	}
	return prev, nil
}

// lookUp fills in prev[i] for each i in missing, and returns those it could not.
// The error is that of the caller's own search; others report theirs.
func (h *Hub) lookUp(ctx context.Context, entries []*entry, prev []*coder.Record,
	missing []int) (left []int, err error) {
	lookups := make([]*lookup, len(missing))
	var mine []*entry
	for n, i := range missing {
		e := entries[i]
		for lookups[n] = e.prev.Load(); lookups[n] == nil; lookups[n] = e.prev.Load() {
			if l := (&lookup{done: make(chan struct{})}); e.prev.CompareAndSwap(nil, l) {
				lookups[n] = l
				mine = append(mine, e)
				break
			}
		}
	}
	if len(mine) > 0 {
		err = h.search(ctx, mine)
	}
	// Not earlier: two consumers may wait for each other's lookups.
	for n, i := range missing {
		l := lookups[n]
		select {
		case <-l.done:
		case <-ctx.Done():
			return missing, ctx.Err()
		}
		if l.err != nil {
			left = append(left, i)
			continue
		}
		prev[i] = l.record
	}
	return left, err
}

// search resolves the lookups the caller has put on entries.
func (h *Hub) search(ctx context.Context, entries []*entry) error {
	lookups := make([]*lookup, len(entries))
	h.mu.Lock()
	for i, e := range entries {
		lookups[i] = e.prev.Load()
		lookups[i].record = h.ring.find(e.Record.Key, e.PrevRevision)
	}
	h.mu.Unlock()

	var at []int
	var keys [][]byte
	var revs []int64
	for i, e := range entries {
		if lookups[i].record == nil {
			at = append(at, i)
			keys = append(keys, e.Record.Key)
			revs = append(revs, e.PrevRevision)
		}
	}
	var err error
	if len(at) > 0 {
		var found []*coder.Record
		found, err = h.src.Versions(ctx, keys, revs)
		if err == nil && len(found) != len(keys) {
			err = fmt.Errorf("watch: source returned %d versions for %d keys", len(found), len(keys))
		}
		for n, i := range at {
			if err != nil {
				lookups[i].err = err
				entries[i].prev.Store(nil)
			} else if r := found[n]; r != nil && !r.Tombstone {
				lookups[i].record = r
			}
		}
	}
	for i, e := range entries {
		if lookups[i].err == nil && e.shared {
			h.memo.add(e, lookups[i])
		}
		close(lookups[i].done)
	}
	return err
}

// prevMemo bounds what shared entries remember of previous versions: beyond
// maxBytes the oldest lookups are forgotten, and made again if needed.
type prevMemo struct {
	maxBytes int

	mu    sync.Mutex
	list  []memoized
	bytes int
}

type memoized struct {
	e    *entry
	l    *lookup
	size int
}

func (m *prevMemo) add(e *entry, l *lookup) {
	size := e.size + entryOverhead // while it is listed here, the entry stays in memory too
	if l.record != nil {
		size += len(l.record.Key) + len(l.record.Value)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, memoized{e, l, size})
	m.bytes += size
	for m.bytes > m.maxBytes {
		old := m.list[0]
		old.e.prev.CompareAndSwap(old.l, nil)
		m.bytes -= old.size
		m.list[0] = memoized{}
		m.list = m.list[1:]
	}
}
