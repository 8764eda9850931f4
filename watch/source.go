package watch

import (
	"context"
	"fmt"

	"github.com/sqlbrain/sqlbrain/coder"
)

// Source is the durable history that the ring is a part of. It is called by several
// goroutines at once, never under a lock of the hub, and must return promptly
// when ctx ends. The hub takes any error that is not a *CompactedError for
// temporary, and calls again, with backoff, until the watcher ends.
//
// Retention: after a compaction at revision C, watches may still
// start at C itself, and get every event of C: puts, deletes and whole
// transactions, superseded since or not (etcd behaves so, measured with 3.7.3). So
// the log of revision C, deletions included, and the version rows of its puts stay
// until the next compaction; only what is below C may go.
type Source interface {
	// Changes returns, in order, the events of revisions in [from, to] on keys
	// of the range (etcd's key and range end, see coder.Contains), whole
	// revisions only, and next, the revision to continue at; next > to means that
	// all was read. One call reads a bounded amount of history, so it may return
	// no events and next <= to, but next is always above from. The events have about
	// atMost bytes, more only if a revision has. Commits above to do
	// not matter. Event.Prev is not filled. The caller may keep
	// and share the events.
	//
	// The error is *CompactedError, with a Revision above from, if history at
	// from is gone, also if it went while Changes was reading.
	Changes(ctx context.Context, key, end []byte, from, to int64, atMost int) (events []*Event, next int64, err error)
	// Versions returns the version that each (keys[i], revs[i]) names, nil where
	// it is compacted away.
	Versions(ctx context.Context, keys [][]byte, revs []int64) ([]*coder.Record, error)
}

// CompactedError says that history below Revision, the compact revision, is gone.
type CompactedError struct{ Revision int64 }

func (e *CompactedError) Error() string {
	return fmt.Sprintf("watch: history below revision %d has been compacted", e.Revision)
}
