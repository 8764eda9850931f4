package watch

import (
	"bytes"
	"slices"
	"sort"

	"github.com/sqlbrain/sqlbrain/coder"
)

// ring keeps the newest events, whole revisions only, within bounds on their
// number and their bytes. It is guarded by the hub's lock.
type ring struct {
	maxEvents, maxBytes int

	// from is the oldest revision covered: all events from it up to the hub's
	// visible revision are in the ring.
	from  int64
	buf   []*entry // buf[head:] is the content
	head  int
	bytes int
}

func (r *ring) events() []*entry { return r.buf[r.head:] }

// covers reports whether every event from revision rev on is in the ring.
func (r *ring) covers(rev int64) bool { return rev >= r.from }

// add appends the events of one revision, newer than all in the ring, and drops
// the oldest ones that no longer fit. A revision that alone exceeds the
// bounds is not kept.
func (r *ring) add(entries []*entry) {
	r.buf = append(r.buf, entries...)
	for _, e := range entries {
		r.bytes += e.size
	}
	for len(r.events()) > r.maxEvents || r.bytes > r.maxBytes {
		r.dropOldest()
	}
}

func (r *ring) dropOldest() {
	kept := r.events()
	end := endOfRevision(kept, 0)
	r.from = kept[0].revision() + 1
	for i, e := range kept[:end] {
		r.bytes -= e.size
		kept[i] = nil
	}
	r.head += end
	if r.head > len(r.buf)/2 {
		// Half is dead: move the rest down, so that appending stays amortized
		// and the array does not grow with the history.
		n := copy(r.buf, r.buf[r.head:])
		clear(r.buf[n:])
		r.buf, r.head = r.buf[:n], 0
	}
}

// reset empties the ring; it covers revisions >= from.
func (r *ring) reset(from int64) {
	r.buf, r.head, r.bytes, r.from = nil, 0, 0, from
}

// since returns the entries from revision rev on. They are valid under the lock
// only.
func (r *ring) since(rev int64) []*entry {
	all := r.events()
	return all[sort.Search(len(all), func(i int) bool { return all[i].revision() >= rev }):]
}

// read returns a copy of about max entries from revision rev on, and the
// revision to go on from, 0 if there are no more.
func (r *ring) read(rev int64, max int) (entries []*entry, next int64) {
	rest := r.since(rev)
	if len(rest) <= max {
		return slices.Clone(rest), 0
	}
	end := endOfRevision(rest, max-1)
	if end < len(rest) {
		next = rest[end].revision()
	}
	return slices.Clone(rest[:end]), next
}

// find returns the version of key that was written at rev, nil if it is not in
// the ring.
func (r *ring) find(key []byte, rev int64) *coder.Record {
	for _, e := range r.since(rev) {
		if e.revision() != rev {
			return nil
		}
		if e.Type == Put && bytes.Equal(e.Record.Key, key) {
			return e.Record
		}
	}
	return nil
}
