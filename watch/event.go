package watch

import (
	"sync/atomic"

	"github.com/sqlbrain/sqlbrain/coder"
)

// EventType says what happened to a key.
type EventType int8

// The event types.
const (
	Put EventType = iota
	Delete
)

// Event is one change of one key. All watchers share it: it must not be changed after it was
// published or returned by a Source.
type Event struct {
	Type EventType
	// Record is the version the change wrote; of a delete only Key and
	// ModRevision are meaningful.
	Record *coder.Record
	// PrevRevision is the revision of the version replaced, 0 on a create.
	PrevRevision int64
	// Prev is that version if the publisher had it in memory, else nil; readers
	// that need it look it up by PrevRevision.
	Prev *coder.Record
}

// IsCreate reports whether the event put a key that did not exist.
func (e *Event) IsCreate() bool { return e.Type == Put && e.Record.Version == 1 }

// entryOverhead is about the memory that an event takes in addition to its bytes.
const entryOverhead = 256

// entry is an event inside the hub, with what the hub remembers about it.
type entry struct {
	*Event
	size int // bytes in memory, without what prev remembers
	// shared entries are in the ring and in the queues of any number of
	// watchers; others were read from the Source for one watcher.
	shared bool
	queues atomic.Int32 // queues that it is in
	// prev is the lookup of the version replaced; nil until the first caller needs it.
	prev atomic.Pointer[lookup]
}

func newEntry(e *Event, shared bool) *entry {
	size := entryOverhead + len(e.Record.Key) + len(e.Record.Value)
	if e.Prev != nil {
		size += len(e.Prev.Key) + len(e.Prev.Value)
	}
	return &entry{Event: e, size: size, shared: shared}
}

func (e *entry) revision() int64 { return e.Record.ModRevision }

// endOfRevision returns the index after the last entry of the revision that
// entries[i] belongs to.
func endOfRevision(entries []*entry, i int) int {
	rev := entries[i].revision()
	for i < len(entries) && entries[i].revision() == rev {
		i++
	}
	return i
}
