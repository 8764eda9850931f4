package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
)

var errFlaky = errors.New("the source has a bad moment")

// history is a key-value store's whole past in memory. It makes events for tests,
// and is the Source of the hub under test.
type history struct {
	mu       sync.Mutex
	events   []*Event // all, in order
	newest   map[string]*coder.Record
	versions map[string]*coder.Record // by key and revision
	revision int64
	compact  int64

	step          int64 // most revisions one Changes reads; 0: no limit
	fail          func() error
	changesCalls  int
	versionsCalls int
}

// change is a put of value, or a delete if value is nil.
type change struct{ key, value string }

func newHistory() *history {
	return &history{revision: 1, newest: map[string]*coder.Record{}, versions: map[string]*coder.Record{}}
}

func versionKey(key []byte, rev int64) string { return fmt.Sprintf("%d/%s", rev, key) }

// commit makes one revision of puts, "key=value" as two arguments each; a value
// of "" deletes. It returns the events as a publisher would have them.
func (h *history) commit(withPrev bool, changes ...change) []*Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	rev := h.revision + 1
	var events []*Event
	for i, c := range changes {
		prev := h.newest[c.key]
		r := &coder.Record{Key: []byte(c.key), ModRevision: rev, Sub: int32(i)}
		e := &Event{Record: r}
		if prev != nil {
			e.PrevRevision = prev.ModRevision
			if withPrev {
				e.Prev = prev
			}
		}
		if c.value == "" {
			if prev == nil {
				continue
			}
			e.Type, r.Tombstone = Delete, true
			delete(h.newest, c.key)
		} else {
			r.Value, r.CreateRevision, r.Version = []byte(c.value), rev, 1
			if prev != nil {
				r.CreateRevision, r.Version = prev.CreateRevision, prev.Version+1
			}
			h.newest[c.key] = r
		}
		h.versions[versionKey(r.Key, rev)] = r
		events = append(events, e)
	}
	if len(events) > 0 {
		h.revision = rev
		h.events = append(h.events, events...)
	}
	return events
}

// at returns the version of the event's key before it.
func (h *history) before(e *Event) *coder.Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.versions[versionKey(e.Record.Key, e.PrevRevision)]
}

func (h *history) setCompact(rev int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.compact = rev
}

// matching returns the events of revisions in [from, to] that a watch asks for.
func (h *history) matching(r CreateRequest, from, to int64) []*Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*Event
	for _, e := range h.events {
		rev := e.Record.ModRevision
		skip := e.Type == Put && r.NoPut || e.Type == Delete && r.NoDelete
		if rev >= from && rev <= to && !skip && coder.Contains(r.Key, r.End, e.Record.Key) {
			out = append(out, e)
		}
	}
	return out
}

func (h *history) Changes(ctx context.Context, key, end []byte, from, to int64, atMost int) ([]*Event, int64, error) {
	h.mu.Lock()
	h.changesCalls++
	fail, compact, step := h.fail, h.compact, h.step
	h.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if fail != nil {
		if err := fail(); err != nil {
			return nil, 0, err
		}
	}
	if from < compact {
		return nil, 0, &CompactedError{Revision: compact}
	}
	if step > 0 {
		to = min(to, from+step-1)
	}
	var out []*Event
	for _, e := range h.matching(CreateRequest{Key: key, End: end}, from, to) {
		if rev := e.Record.ModRevision; atMost <= 0 && rev > out[len(out)-1].Record.ModRevision {
			return out, rev, nil
		}
		atMost -= newEntry(e, false).size
		bare := *e
		bare.Prev = nil
		out = append(out, &bare)
	}
	return out, to + 1, nil
}

func (h *history) Versions(ctx context.Context, keys [][]byte, revs []int64) ([]*coder.Record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versionsCalls++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if h.fail != nil {
		if err := h.fail(); err != nil {
			if h.versionsCalls%2 == 0 {
				err = nil // and no answers
			}
			return nil, err
		}
	}
	out := make([]*coder.Record, len(keys))
	for i, k := range keys {
		r := h.versions[versionKey(k, revs[i])]
		if r == nil {
			continue
		}
		// Gone if a newer version stands at or below the compact revision.
		superseded := slices.ContainsFunc(h.events, func(e *Event) bool {
			return string(e.Record.Key) == string(k) && e.Record.ModRevision > revs[i] && e.Record.ModRevision <= h.compact
		})
		if !superseded {
			out[i] = r
		}
	}
	return out, nil
}
