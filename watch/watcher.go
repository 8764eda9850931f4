package watch

import (
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
)

// state is the state of a watcher. Live and lagging alternate; ended is final.
type state int8

const (
	// live watchers are in the index: all their events up to the hub's visible revision
	// are queued.
	live state = iota
	// lagging watchers are not: history is replayed for them from watcher.next.
	lagging
	// ended watchers get no more events.
	ended
)

// watcher is one watch of a stream.
type watcher struct {
	stream          *Stream
	id              int64
	key, end        []byte
	start           int64 // as asked for: 0 is whatever comes after the creation
	noPut, noDelete bool
	prevKV          bool
	notify          bool // periodic progress
	fragment        bool

	// Guarded by the hub's lock.
	state    state
	next     int64       // lagging: first revision not queued
	running  bool        // lagging: a worker is replaying
	failures int         // errors of the Source in a row
	slot     int         // live: place in its watcherSet
	batch    []*entry    // events of the revision being published
	progress *time.Timer // next periodic progress; nil if there is none
	retry    *time.Timer // next attempt after an error of the Source; nil if none is due

	// Guarded by the stream's lock.
	last       *pending  // the last response with its events, nil once that was taken
	stops      int       // the queue's when last was queued
	queued     int       // events in the queue
	bytes      int       // their bytes
	notified   bool      // a periodic progress response is in the queue
	parked     bool      // lagging, and waits for the consumer to drain the queue
	gone       bool      // ended: nothing more may be queued for it
	lastEvents time.Time // when events were queued last; kept for notify only
}

// wants reports whether the filters let e pass.
func (w *watcher) wants(e *Event) bool {
	if e.Type == Put {
		return !w.noPut
	}
	return !w.noDelete
}

// filter returns those of entries that are for w.
func (w *watcher) filter(entries []*entry) []*entry {
	var matching []*entry
	for _, e := range entries {
		if w.wants(e.Event) && coder.Contains(w.key, w.end, e.Record.Key) {
			matching = append(matching, e)
		}
	}
	return matching
}
