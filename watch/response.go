package watch

import (
	"errors"

	"github.com/sqlbrain/sqlbrain/coder"
)

// ErrClosed: the stream or its hub was closed.
var ErrClosed = errors.New("watch: stream closed")

// NoWatchID is the watch id of responses that belong to no watcher: refused
// creates, and progress of a whole stream.
const NoWatchID int64 = -1

// Response is one message for the client.
type Response struct {
	WatchID         int64
	Revision        int64 // header revision
	Created         bool
	Canceled        bool
	CancelReason    string
	CompactRevision int64
	Events          []*Event        // whole revisions
	Prev            []*coder.Record // per event, nil entries where absent; nil unless the watcher asked for prev_kv
	Fragment        bool            // the watcher accepts fragments
}
