// Draft of the package's API; the comments are the contract.
package watch

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sqlbrain/sqlbrain/coder"
)

// Source is the durable history behind the ring.
type Source interface {
	// Changes returns, in order, the events of revisions in [from, to] on keys
	// of the range (etcd's key and range end, see coder.Contains), whole revisions only,
	// and next, the revision to go on from; next > to says that all was read.
	// One call reads a bounded amount of history, so it may return no events and next <= to.
	// Event.Prev is not filled. The error is *CompactedError if history at from is gone.
	Changes(ctx context.Context, key, end []byte, from, to int64) (events []*Event, next int64, err error)
	// Versions returns the version that each (keys[i], revs[i]) names, nil where it is compacted away.
	Versions(ctx context.Context, keys [][]byte, revs []int64) ([]*coder.Record, error)
}

// CompactedError: history below Revision (the compact revision) is gone.
type CompactedError struct{ Revision int64 }

func (e *CompactedError) Error() string { return "compacted" }

// Config configures a Hub; zero values are replaced by defaults.
type Config struct {
	RingEvents       int           // events kept in the ring
	RingBytes        int           // bytes of keys and values kept in the ring
	QueueEvents      int           // events queued for one watcher before it counts as slow
	ProgressInterval time.Duration // periodic progress notices of watchers that ask for them; 10 minutes
	Logger           *slog.Logger
	Registerer       prometheus.Registerer // nil: metrics are kept, not registered
}

// Hub distributes events to watchers.
type Hub struct{}

// NewHub returns a hub whose newest revision is frontier, compacted at compact. It owns goroutines until Close.
func NewHub(src Source, frontier, compact int64, cfg Config) *Hub { panic("draft") }

// Publish hands the hub all events up to and including the revision frontier that it has not seen, in order. One caller at a time.
// It never blocks on watchers or on the source.
func (h *Hub) Publish(events []*Event, frontier int64) { panic("draft") }

// Compact tells the hub that the compact revision rose to rev.
func (h *Hub) Compact(rev int64) { panic("draft") }

// Revision is the newest revision published.
func (h *Hub) Revision() int64 { panic("draft") }

// Close ends all streams and waits for the hub's goroutines.
func (h *Hub) Close() { panic("draft") }

// CreateRequest asks for a watcher.
type CreateRequest struct {
	WatchID         int64 // 0: the stream chooses
	Key, End        []byte
	StartRevision   int64 // 0: from the revision after the current one
	PrevKV          bool
	ProgressNotify  bool
	Fragment        bool // only carried through to Response
	NoPut, NoDelete bool
}

// Stream is the watchers of one client stream, and one queue of responses in the order they must be sent.
type Stream struct{}

// NewStream opens a stream; it ends with Close or with the hub.
func (h *Hub) NewStream() *Stream { panic("draft") }

// Create adds a watcher. Its Created response, or the refused one (created, canceled, reason), is queued.
func (s *Stream) Create(r CreateRequest) { panic("draft") }

// Cancel ends a watcher and queues its Canceled response; unknown ids are ignored.
func (s *Stream) Cancel(id int64) { panic("draft") }

// RequestProgress queues a progress response for the whole stream (WatchID -1) if every watcher is synced and started; otherwise nothing.
func (s *Stream) RequestProgress() { panic("draft") }

// Next returns the next response, waiting for one; its error is ctx's, or ErrClosed.
func (s *Stream) Next(ctx context.Context) (*Response, error) { panic("draft") }

// Close ends the stream and all its watchers.
func (s *Stream) Close() { panic("draft") }

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
