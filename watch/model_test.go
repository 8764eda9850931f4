package watch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
)

// A random history: one driver creates and cancels watchers, commits, compacts
// and reads streams in a random order, with hubs so small that everything
// overflows and a Source that fails. Each response is checked against what a
// watcher of the whole history must get. Run again with
//
//	WATCH_SEED=<seed> go test -run TestRandomHistories ./watch
func TestRandomHistories(t *testing.T) {
	seeds := 150
	if os.Getenv("WATCH_LONG") != "" {
		seeds = 5000
	}
	if s := os.Getenv("WATCH_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		synctest.Test(t, func(t *testing.T) { runHistory(t, seed) })
		return
	}
	for range seeds {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) { runHistory(t, seed) })
		if t.Failed() {
			return
		}
	}
}

// modelWatcher is what is known of a watcher from the outside.
type modelWatcher struct {
	req      CreateRequest
	from     int64 // first revision it must get
	passed   int64 // all its events up to here have been received
	canceled bool  // with a compact revision
}

// modelStream is a stream and its watchers, by id. Those in coming are created,
// but their Created response was not read yet.
type modelStream struct {
	name     int
	s        *Stream
	watchers map[int64]*modelWatcher
	coming   []*modelWatcher
}

type model struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	src     *history
	hub     *Hub
	streams []*modelStream
	log     []string
	opened  int

	progress int64 // of the last progress response of a stream
}

func (m *model) logf(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

func (m *model) fatalf(format string, args ...any) {
	m.t.Helper()
	for _, l := range m.log[max(0, len(m.log)-100):] {
		m.t.Log(l)
	}
	m.t.Fatalf("WATCH_SEED=%d: %s", m.seed, fmt.Sprintf(format, args...))
}

func runHistory(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	m := &model{t: t, seed: seed, rng: rng, src: newHistory()}
	m.src.step = int64(pick(0, 1, 2, 5, 50))
	m.hub = NewHub(m.src, 1, -1, Config{
		RingEvents: pick(1, 3, 20, 1000), RingBytes: pick(300, 3000, 1<<20),
		QueueEvents: pick(1, 2, 5, 100), QueueBytes: pick(300, 2000, 1<<20),
		ProgressInterval: time.Duration(pick(1, 60)) * time.Second,
	})
	m.hub.meetMost = pick(0, 1, 10, 512)
	defer m.hub.Close()
	// The Source has dice of its own: it is called by several goroutines.
	dice := rand.New(rand.NewPCG(seed, 2))
	lucky := make(chan func() float64, 1)
	lucky <- dice.Float64
	failing := []float64{0, 0, 0.1, 0.5}[rng.IntN(4)]
	m.src.fail = func() error {
		f := <-lucky
		defer func() { lucky <- f }()
		if f() < failing {
			return errFlaky
		}
		return nil
	}
	for range pick(1, 2, 4) {
		m.streams = append(m.streams, m.newStream())
	}
	for range 30 + rng.IntN(400) {
		m.step()
		if rng.IntN(4) == 0 {
			synctest.Wait()
		}
	}
	m.finish()
}

func (m *model) newStream() *modelStream {
	m.opened++
	return &modelStream{name: m.opened, s: m.hub.NewStream(), watchers: map[int64]*modelWatcher{}}
}

func (m *model) step() {
	ms := m.streams[m.rng.IntN(len(m.streams))]
	switch n := m.rng.IntN(100); {
	case n < 45:
		m.commit()
	case n < 60:
		m.create(ms)
	case n < 66:
		m.cancel(ms)
	case n < 70:
		ms.s.RequestProgress()
	case n < 72:
		m.compact()
	case n < 73:
		ms.s.Close()
		*ms = *m.newStream()
	case n < 75:
		time.Sleep(time.Duration(m.rng.IntN(2000)) * time.Millisecond) // in fake time
	default:
		for range 1 + m.rng.IntN(6) {
			m.read(ms)
		}
	}
}

func (m *model) key() string { return string("abcdef"[m.rng.IntN(6)]) }

func (m *model) commit() {
	var batch []*Event
	for range 1 + m.rng.IntN(3) {
		var changes []change
		for _, i := range m.rng.Perm(6)[:1+m.rng.IntN(3)] {
			c := change{key: string("abcdef"[i])}
			if m.rng.IntN(4) > 0 {
				c.value = fmt.Sprintf("%0*d", 1+m.rng.IntN(300), m.src.revision)
			}
			changes = append(changes, c)
		}
		batch = append(batch, m.src.commit(m.rng.IntN(2) == 0, changes...)...)
		if m.rng.IntN(5) == 0 {
			synctest.Wait() // workers meet a Source that is ahead of the hub
		}
	}
	m.logf("publish up to %d", m.src.revision)
	m.hub.Publish(batch, m.src.revision, func() {})
}

func (m *model) create(ms *modelStream) {
	visible := m.hub.Revision()
	r := CreateRequest{
		Key:    []byte(m.key()),
		PrevKV: m.rng.IntN(2) == 0, ProgressNotify: m.rng.IntN(2) == 0, Fragment: m.rng.IntN(2) == 0,
		NoPut: m.rng.IntN(8) == 0, NoDelete: m.rng.IntN(8) == 0,
	}
	switch m.rng.IntN(4) {
	case 0:
		r.End = []byte{0}
	case 1:
		r.End = []byte(m.key() + "x")
	}
	switch m.rng.IntN(5) {
	case 0, 1:
		r.StartRevision = 1 + m.rng.Int64N(visible)
	case 2:
		r.StartRevision = visible + m.rng.Int64N(5)
	}
	if m.rng.IntN(4) == 0 {
		r.WatchID = 1 + m.rng.Int64N(20)
	}
	m.logf("%d: create %q-%q from %d, id %d", ms.name, r.Key, r.End, r.StartRevision, r.WatchID)
	w := &modelWatcher{req: r, from: r.StartRevision, passed: visible}
	if w.from == 0 {
		w.from = visible + 1
	} else {
		w.passed = min(visible, w.from-1)
	}
	ms.coming = append(ms.coming, w)
	ms.s.Create(Permitted, r)
}

func (m *model) cancel(ms *modelStream) {
	id := m.rng.Int64N(10)
	m.logf("%d: cancel %d", ms.name, id)
	ms.s.Cancel(id)
}

func (m *model) compact() {
	rev := m.src.compact + m.rng.Int64N(max(1, m.hub.Revision()-m.src.compact+1))
	if rev <= 0 || rev > m.hub.Revision() {
		return
	}
	m.logf("compact %d", rev)
	m.src.setCompact(rev)
	if m.rng.IntN(2) == 0 {
		synctest.Wait() // the Source knows first
	}
	m.hub.Compact(rev)
}

// read takes one response, if there is any, and checks it.
func (m *model) read(ms *modelStream) bool {
	ms.s.mu.Lock()
	empty := ms.s.head == nil
	ms.s.mu.Unlock()
	if empty {
		return false
	}
	r, err := ms.s.Next(context.Background())
	if err != nil {
		m.fatalf("next: %v", err)
	}
	m.logf("%d: read %s", ms.name, brief(r))
	m.check(ms, r)
	return true
}

func (m *model) check(ms *modelStream, r *Response) {
	m.t.Helper()
	if r.Revision > m.hub.Revision() {
		m.fatalf("%s: the revision is not there yet", brief(r))
	}
	w := ms.watchers[r.WatchID]
	switch {
	case r.Created:
		w := ms.coming[0]
		ms.coming = ms.coming[1:]
		invalid := len(w.req.End) > 0 && !coder.IsFromKey(w.req.End) && string(w.req.End) <= string(w.req.Key)
		taken := ms.watchers[w.req.WatchID] != nil && w.req.WatchID != 0
		if refused := invalid || taken; refused != r.Canceled || refused != (r.WatchID == NoWatchID) ||
			refused != (r.CancelReason != "") {
			m.fatalf("%s: refused should be %v", brief(r), refused)
		}
		if !r.Canceled {
			if ms.watchers[r.WatchID] != nil || w.req.WatchID != 0 && r.WatchID != w.req.WatchID {
				m.fatalf("%s: wrong id", brief(r))
			}
			ms.watchers[r.WatchID] = w
		}
	case r.WatchID == NoWatchID:
		m.progress = r.Revision
		for id, w := range ms.watchers {
			m.checkPassed(r, id, w, r.Revision)
			if w.canceled || w.req.StartRevision > r.Revision {
				m.fatalf("%s: watcher %d is canceled or not started", brief(r), id)
			}
		}
	case w == nil:
		m.fatalf("%s: no such watcher", brief(r))
	case r.Canceled && r.CompactRevision == 0:
		delete(ms.watchers, r.WatchID)
	case w.canceled:
		m.fatalf("%s: the watcher is canceled", brief(r))
	case r.Canceled:
		if r.Revision != 0 || r.CancelReason != "" || r.CompactRevision > m.src.compact || w.passed+1 >= r.CompactRevision {
			m.fatalf("%s: watcher got all up to %d, compacted %d", brief(r), w.passed, m.src.compact)
		}
		w.canceled = true
	case len(r.Events) == 0:
		if !w.req.ProgressNotify || w.req.StartRevision > r.Revision {
			m.fatalf("%s: not asked for, or not started", brief(r))
		}
		m.checkPassed(r, r.WatchID, w, r.Revision)
	default:
		m.checkEvents(r, w)
	}
}

// checkPassed checks that w has got all its events up to rev.
func (m *model) checkPassed(r *Response, id int64, w *modelWatcher, rev int64) {
	m.t.Helper()
	if missing := m.src.matching(w.req, max(w.from, w.passed+1), rev); len(missing) > 0 {
		m.fatalf("%s: watcher %d misses an event of revision %d", brief(r), id, missing[0].Record.ModRevision)
	}
}

// checkEvents checks that r carries w's next events, whole revisions.
func (m *model) checkEvents(r *Response, w *modelWatcher) {
	m.t.Helper()
	last := r.Events[len(r.Events)-1].Record.ModRevision
	want := m.src.matching(w.req, max(w.from, w.passed+1), last)
	if len(want) != len(r.Events) || last > r.Revision || r.Fragment != w.req.Fragment || w.req.PrevKV != (r.Prev != nil) {
		m.fatalf("%s: %d events expected", brief(r), len(want))
	}
	for i, e := range r.Events {
		if e.Record != want[i].Record || e.Type != want[i].Type {
			m.fatalf("%s: event %d should be of %q at %d", brief(r), i, want[i].Record.Key, want[i].Record.ModRevision)
		}
		if r.Prev == nil {
			continue
		}
		prev := m.src.before(e)
		if prev != nil && prev.Tombstone {
			prev = nil
		}
		if r.Prev[i] != prev && !(r.Prev[i] == nil && e.Record.ModRevision <= m.src.compact) {
			m.fatalf("%s: event %d has the wrong previous version", brief(r), i)
		}
	}
	w.passed = last
}

// finish reads everything, and checks that every watcher got all it must.
func (m *model) finish() {
	for round := 0; ; round++ {
		if round == 1000 {
			m.fatalf("watchers are still behind")
		}
		// Fake time: the longest backoff is over, and so is all work.
		time.Sleep(reading.Max)
		synctest.Wait()
		for _, ms := range m.streams {
			for m.read(ms) {
				synctest.Wait()
			}
		}
		if m.done() {
			break
		}
	}
	visible := m.hub.Revision()
	for _, ms := range m.streams {
		progress := len(ms.watchers) > 0
		for id, w := range ms.watchers {
			if w.canceled || w.req.StartRevision > visible {
				progress = false
				continue
			}
			m.checkPassed(&Response{WatchID: id, Revision: visible}, id, w, visible)
		}
		m.progress = 0
		ms.s.RequestProgress()
		for m.read(ms) {
		}
		if got := m.progress == visible; got != progress {
			m.fatalf("progress at the end: %v, expected %v", got, progress)
		}
	}
}

// done reports whether no watcher is behind any more and nothing is queued.
func (m *model) done() bool {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	for _, ms := range m.streams {
		ms.s.mu.Lock()
		empty := ms.s.head == nil
		ms.s.mu.Unlock()
		if !empty {
			return false
		}
	}
	return len(m.hub.lagging) == 0
}
