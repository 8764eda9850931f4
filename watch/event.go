package watch

import "github.com/sqlbrain/sqlbrain/coder"

// EventType says what happened to a key.
type EventType int8

const (
	Put EventType = iota
	Delete
)

// Event is one change of one key. Events are shared by all watchers.
type Event struct {
	Type EventType
	// Record is the version the change wrote; of a delete only Key and
	// ModRevision are meaningful.
	Record *coder.Record
	// PrevRevision is the revision of the version replaced, 0 on a create.
	PrevRevision int64
	// Prev is that version if the publisher had it at hand, else nil; readers
	// that want it look it up by PrevRevision.
	Prev *coder.Record
}

// IsCreate reports whether the event put a key that did not exist.
func (e *Event) IsCreate() bool { return e.Type == Put && e.Record.Version == 1 }
