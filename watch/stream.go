package watch

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
)

// Reasons of refused creates, in etcd's words.
const (
	reasonNegativeStart = "etcdserver: mvcc: required revision has been compacted"
	reasonEmptyRange    = "mvcc: watcher range is empty"
	reasonDuplicateID   = "mvcc: duplicate watch ID provided on the WatchStream"
	// etcd has no reason for a watch whose permission was not checked.
	reasonNoVerdict = "etcdserver: permission denied"
	// etcd keeps watches of keys that cannot exist, however long the keys are.
	reasonKeyTooLong = "sqlbrain: key is too long"
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
	future   map[*watcher]struct{} // watchers whose start was in the future when last checked

	waiting []*watcher // in the ready queue, whose lock guards it

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
	s.queue.init(&h.cfg, &h.queued, h.metrics, &h.ready)
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

// Decision says whether a watcher may be created. The zero Decision refuses.
type Decision struct {
	permitted bool
	reason    string
}

// Permitted lets a watcher be created.
var Permitted = Decision{permitted: true}

// Refused refuses a watcher; reason goes to the client.
func Refused(reason string) Decision { return Decision{reason: reason} }

// Create adds a watcher if v permits it. Its Created response, or the refused one (created,
// canceled, reason, watch id NoWatchID), is queued. A start below the compact
// revision is answered with Created and then Canceled with CompactRevision.
//
// Create waits while thousands of answers to earlier requests are queued and the
// consumer takes none, so that a client cannot fill the memory with them.
func (s *Stream) Create(v Decision, r CreateRequest) {
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
	visible := h.visible.Load()
	if reason := s.refusal(w, v); reason != "" {
		s.control(nil, Response{
			WatchID: NoWatchID, Revision: visible, Created: true, Canceled: true, CancelReason: reason,
		})
		return
	}
	if w.id == 0 {
		w.id = s.freeID()
	}
	s.watchers[w.id] = w
	h.metrics.watchers.Inc()
	s.control(w, Response{WatchID: w.id, Revision: visible, Created: true})
	h.start(w, visible)
}

// refusal returns why w cannot be created, in the order of etcd's checks.
func (s *Stream) refusal(w *watcher, v Decision) string {
	switch {
	case w.start < 0:
		return reasonNegativeStart
	case !v.permitted:
		return cmp.Or(v.reason, reasonNoVerdict)
	case len(w.end) > 0 && !coder.IsFromKey(w.end) && bytes.Compare(w.key, w.end) >= 0:
		return reasonEmptyRange
	case tooLong(w.key) || tooLong(w.end):
		return reasonKeyTooLong
	case w.id != 0 && s.watchers[w.id] != nil:
		return reasonDuplicateID
	}
	return ""
}

// tooLong reports whether key is longer than any key, and than the smallest key after any.
func tooLong(key []byte) bool { return coder.CheckKey(bytes.TrimSuffix(key, []byte{0})) != nil }

// freeID chooses an id. Ids it has chosen are not chosen again.
func (s *Stream) freeID() int64 {
	for s.watchers[s.nextID] != nil {
		s.nextID++
	}
	s.nextID++
	return s.nextID - 1
}

// start puts a new watcher where its start revision belongs.
func (h *Hub) start(w *watcher, visible int64) {
	s := w.stream
	if w.notify {
		w.progress = h.after(h.cfg.ProgressInterval, w, func() { h.notify(w) })
	}
	if w.start == 0 || w.start > visible {
		if w.start > visible {
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
// still come before that, none after it. Unknown ids, also of watchers cancelled
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
	s.control(nil, Response{WatchID: id, Revision: h.visible.Load(), Canceled: true})
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
	visible := h.visible.Load()
	for w := range s.future {
		if w.start > visible {
			return
		}
		delete(s.future, w)
	}
	// Live watchers have all their events up to the visible revision in the queue, and
	// this follows them.
	s.streamProgress(visible)
}

// notify queues the periodic progress of w if it is due, synced and started, and
// sets the time of the next. The caller must hold the hub's lock.
func (h *Hub) notify(w *watcher) {
	wait, since := h.cfg.ProgressInterval, time.Now().Add(-h.cfg.ProgressInterval)
	if visible := h.visible.Load(); w.state == live && w.start <= visible {
		if last := w.stream.watcherProgress(w, visible, since); !last.IsZero() {
			wait = last.Sub(since)
		}
	}
	w.progress.Reset(wait)
}

// Close ends the stream and all its watchers. Next then returns ErrClosed.
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

// Next returns the next response, waiting for one; its error is ctx's, or
// ErrClosed. A response is not lost if ctx ends: the next call returns it. For a
// watcher with PrevKV, Next asks the Source for previous versions that are not in
// memory, and repeats that, with backoff, while the Source fails.
func (s *Stream) Next(ctx context.Context) (*Response, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, err := s.next()
		if err != nil {
			return nil, err
		}
		if p != nil {
			return s.finish(ctx, p)
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// finish makes the response of p, which was taken: of its first revisions, if the versions that all of them replaced
// are large. The next call makes that of the others.
func (s *Stream) finish(ctx context.Context, p *pending) (*Response, error) {
	resp, entries := p.resp, p.entries
	if p.kind == eventKind {
		if p.w.prevKV {
			prev, err := s.previous(ctx, entries)
			if err != nil {
				return nil, err
			}
			resp.Prev, entries = prev, entries[:len(prev)]
		}
		resp.Events = make([]*Event, len(entries))
		for i, e := range entries {
			resp.Events[i] = e.Event
		}
		s.hub.metrics.events.Add(float64(len(entries)))
	}
	s.handedOver(entries, p.entries[len(entries):])
	return &resp, nil
}
