package watch

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
)

// ErrClosed: the stream or its hub was closed.
var ErrClosed = errors.New("watch: stream closed")

// NoWatchID is the watch id of responses that belong to no watcher: refused
// creates, and progress of a whole stream.
const NoWatchID int64 = -1

// Reasons of refused creates, in etcd's words.
const (
	reasonNegativeStart = "etcdserver: mvcc: required revision has been compacted"
	reasonEmptyRange    = "mvcc: watcher range is empty"
	reasonDuplicateID   = "mvcc: duplicate watch ID provided on the WatchStream"
)

// CreateRequest asks for a watcher.
type CreateRequest struct {
	WatchID         int64  // 0: the stream chooses
	Key, End        []byte // as coder.Contains has them; an empty Key is the smallest key, one zero byte
	StartRevision   int64  // 0: from the revision after the current one
	PrevKV          bool
	ProgressNotify  bool
	Fragment        bool // only carried through to Response
	NoPut, NoDelete bool
	Refused         string // not empty: no watcher, but a refusal for this reason
}

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

// Stream is the watchers of one client stream, and one queue of responses in the
// order they must be sent. Create, Cancel, RequestProgress and Close may be
// called by any goroutine, Next by one at a time.
type Stream struct {
	hub    *Hub
	ctx    context.Context // ends with the stream
	cancel context.CancelFunc

	// Guarded by the hub's lock.
	watchers map[int64]*watcher // also those ended by compaction, see Hub.endCompacted
	nextID   int64
	unsynced int                   // watchers that are not live
	future   map[*watcher]struct{} // watchers whose start was in the future when last looked at

	queue
}

// NewStream opens a stream; it ends with Close or with the hub.
func (h *Hub) NewStream() *Stream {
	s := &Stream{
		hub:      h,
		watchers: make(map[int64]*watcher),
		future:   make(map[*watcher]struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(h.ctx)
	s.queue.init(h)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		s.cancel()
		s.queue.close()
		return s
	}
	h.streams[s] = struct{}{}
	h.metrics.streams.Inc()
	return s
}

// Create adds a watcher. Its Created response, or the refused one (created,
// canceled, reason, watch id NoWatchID), is queued. A start below the compact
// revision is answered with Created and then Canceled with CompactRevision.
//
// Create waits while thousands of answers to earlier requests are queued and the
// consumer takes none, so that a client cannot fill the memory with them.
func (s *Stream) Create(r CreateRequest) {
	s.waitForRoom()
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	w := &watcher{
		stream: s, id: r.WatchID, start: r.StartRevision,
		key: slices.Clone(r.Key), end: slices.Clone(r.End),
		noPut: r.NoPut, noDelete: r.NoDelete,
		prevKV: r.PrevKV, notify: r.ProgressNotify, fragment: r.Fragment,
	}
	if len(w.key) == 0 {
		w.key = []byte{0}
	}
	frontier := h.frontier.Load()
	if reason := s.refusal(w, r.Refused); reason != "" {
		s.control(nil, Response{
			WatchID: NoWatchID, Revision: frontier, Created: true, Canceled: true, CancelReason: reason,
		})
		return
	}
	if w.id == 0 {
		w.id = s.freeID()
	}
	s.watchers[w.id] = w
	h.metrics.watchers.Inc()
	s.control(w, Response{WatchID: w.id, Revision: frontier, Created: true})
	h.start(w, frontier)
}

// refusal returns why w cannot be created, in the order in which etcd looks; callers
// is the caller's own reason, "" for none.
func (s *Stream) refusal(w *watcher, callers string) string {
	switch {
	case w.start < 0:
		return reasonNegativeStart
	case callers != "":
		return callers
	case len(w.end) > 0 && !coder.IsFromKey(w.end) && bytes.Compare(w.key, w.end) >= 0:
		return reasonEmptyRange
	case w.id != 0 && s.watchers[w.id] != nil:
		return reasonDuplicateID
	}
	return ""
}

// freeID chooses an id. Ids it has chosen are not chosen again.
func (s *Stream) freeID() int64 {
	for s.watchers[s.nextID] != nil {
		s.nextID++
	}
	s.nextID++
	return s.nextID - 1
}

// start puts a new watcher where its start revision belongs.
func (h *Hub) start(w *watcher, frontier int64) {
	s := w.stream
	if w.notify {
		w.progress.fire = func(now time.Time) { h.notify(w, now) }
		h.timers.set(&w.progress, time.Now().Add(h.cfg.ProgressInterval))
	}
	w.retry.fire = func(time.Time) { h.schedule(w) }
	if w.start == 0 || w.start > frontier {
		if w.start > frontier {
			s.future[w] = struct{}{}
		}
		h.index.add(w)
		return
	}
	s.unsynced++
	h.enterBehind(w, w.start)
	if h.advance(w) {
		h.schedule(w)
	}
}

// Cancel ends a watcher and queues its Canceled response; events queued for it may
// still come ahead of that, none behind it. Unknown ids, also of watchers cancelled
// before, are ignored as in etcd. It waits as Create does.
func (s *Stream) Cancel(id int64) {
	s.waitForRoom()
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	w := s.watchers[id]
	if w == nil {
		return
	}
	delete(s.watchers, id)
	delete(s.future, w)
	if w.state != live {
		s.unsynced--
	}
	h.end(w)
	s.drop(w)
	s.control(nil, Response{WatchID: id, Revision: h.frontier.Load(), Canceled: true})
}

// RequestProgress queues a progress response for the whole stream (watch id
// NoWatchID) if the stream has watchers and every one of them is synced and
// started; otherwise nothing, as in etcd. A watcher cancelled by compaction counts
// as not synced until Cancel is called for it.
func (s *Stream) RequestProgress() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.unsynced > 0 || len(s.watchers) == 0 {
		return
	}
	frontier := h.frontier.Load()
	for w := range s.future {
		if w.start > frontier {
			return
		}
		delete(s.future, w)
	}
	// Live watchers have all their events up to the frontier in the queue, and
	// this goes behind them.
	s.streamProgress(frontier)
}

// notify queues the periodic progress of w if it is due, synced and started, and
// sets the time of the next. The hub's lock is held.
func (h *Hub) notify(w *watcher, now time.Time) {
	due := now.Add(h.cfg.ProgressInterval)
	if frontier := h.frontier.Load(); w.state == live && w.start <= frontier {
		if last := w.stream.watcherProgress(w, frontier, now.Add(-h.cfg.ProgressInterval)); !last.IsZero() {
			due = last.Add(h.cfg.ProgressInterval)
		}
	}
	h.timers.set(&w.progress, due)
}

// Close ends the stream and all its watchers. Next returns ErrClosed from now on.
func (s *Stream) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.close()
}

// close is Close with the hub's lock held.
func (s *Stream) close() {
	h := s.hub
	if _, open := h.streams[s]; !open {
		return
	}
	delete(h.streams, s)
	h.metrics.streams.Dec()
	for _, w := range s.watchers {
		h.end(w)
	}
	clear(s.watchers)
	clear(s.future)
	s.cancel()
	s.queue.close()
}
