package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// progressInterval is how often progress is asked for: kube-apiserver's, while
// consistent reads wait for its cache.
const progressInterval = 100 * time.Millisecond

// watches is a set of watchers on one connection, each with its own stream
// as in kube-apiserver: a progress response is for a whole stream, so that of a
// stream that is being resumed may reach a watcher that does not exist yet. The
// goroutines it owns end with close.
type watches struct {
	r      *runner
	p      *phase
	client *clientv3.Client
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	all    []*watcher
}

// watcher records what one watch delivered. One goroutine fills it. mu guards what other
// goroutines read at the same time.
type watcher struct {
	set    *watches
	prefix string
	one    *object // watched alone, prefix being its key; nil: all below prefix
	from   int64   // start revision
	// seen, if not nil, is called with each event and its value as they arrive.
	seen func(e *event, value []byte, at time.Time)

	mu      sync.Mutex
	created bool // the server has answered
	events  []event
	newest  int64         // revision of the last event
	reached int64         // all events up to here came
	err     error         // what ended the watch, if it was not asked to end
	changed chan struct{} // closed when any of the above changes
}

// openWatches returns an empty set with its own connection.
func (r *runner) openWatches(ctx context.Context, p *phase) (*watches, error) {
	clients, err := connect(ctx, &r.cfg, 1)
	if err != nil {
		return nil, err
	}
	ws := &watches{r: r, p: p, client: clients[0]}
	ws.ctx, ws.cancel = context.WithCancel(clientv3.WithRequireLeader(ctx))
	return ws, nil
}

// close ends the watches and waits for them.
func (ws *watches) close() error {
	ws.cancel()
	ws.wg.Wait()
	return ws.client.Close()
}

// watch starts a watcher at revision from, as kube-apiserver watches a resource.
func (ws *watches) watch(prefix string, from int64, seen func(*event, []byte, time.Time)) *watcher {
	w := ws.add(&watcher{prefix: prefix, from: from, seen: seen})
	// clientv3 distinguishes streams by the metadata of their context.
	ctx := metadata.AppendToOutgoingContext(ws.ctx, "source", fmt.Sprintf("bench-%d", len(ws.all)))
	w.receive(ws.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithPrevKV(),
		clientv3.WithProgressNotify(), clientv3.WithCreatedNotify()))
	ws.wg.Go(func() {
		for range retry.Every(ctx, progressInterval) {
			// If this keeps failing, the watch gets stuck, which is reported.
			_ = ws.client.RequestProgress(ctx)
		}
	})
	return w
}

// watchOne starts a watcher of one object at revision from, as a kubelet watches a secret. All
// such watchers of a set share a stream.
func (ws *watches) watchOne(o *object, from int64, seen func(*event, []byte, time.Time)) *watcher {
	w := ws.add(&watcher{prefix: o.key, one: o, from: from, seen: seen})
	w.receive(ws.client.Watch(ws.ctx, o.key, clientv3.WithRev(from), clientv3.WithPrevKV(), clientv3.WithCreatedNotify()))
	return w
}

func (ws *watches) add(w *watcher) *watcher {
	w.set, w.reached, w.changed = ws, w.from-1, make(chan struct{})
	ws.all = append(ws.all, w)
	return w
}

// receive records responses until the watch ends.
func (w *watcher) receive(ch clientv3.WatchChan) {
	w.set.wg.Go(func() {
		for resp := range ch {
			w.take(&resp)
		}
		w.update(func() {
			if w.err == nil && w.set.ctx.Err() == nil {
				w.err = errors.New("the watch ended by itself")
			}
		})
	})
}

// awaitCreated returns when the server has confirmed all watchers.
func (ws *watches) awaitCreated(ctx context.Context) error {
	for _, w := range ws.all {
		if err := w.wait(ctx, func() bool { return w.created }); err != nil {
			return err
		}
	}
	return nil
}

// update changes w under its lock and wakes the goroutines that wait for a change.
func (w *watcher) update(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *watcher) take(resp *clientv3.WatchResponse) {
	now := time.Now()
	fail := w.set.r.verify.fail
	var events []event
	for i, ev := range resp.Events {
		e, err := w.eventOf(ev)
		if err != nil {
			fail("watch %s: %v", w.prefix, err)
			continue
		}
		// All events of a revision come in one response.
		last, reached := w.position()
		if i == 0 && e.now.mod <= last {
			fail("watch %s: revision %d after %d", w.prefix, e.now.mod, last)
		}
		if e.now.mod <= reached {
			fail("watch %s: event of %s at %d after progress to %d", w.prefix, e.object.key, e.now.mod, reached)
		}
		events = append(events, e)
		w.set.p.steps.Add(1)
		if w.seen != nil {
			w.seen(&e, ev.Kv.Value, now)
		}
	}
	w.update(func() {
		w.events = append(w.events, events...)
		if n := len(w.events); n > 0 {
			w.newest = w.events[n-1].now.mod
		}
		switch {
		case resp.Err() != nil:
			w.err = resp.Err()
		case resp.Created:
			w.created = true
		case len(resp.Events) == 0: // progress: everything up to there has come
			w.reached = max(w.reached, resp.Header.Revision)
		}
	})
}

// position returns the revision of the last event, and up to which all events came.
func (w *watcher) position() (newest, reached int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest, w.reached
}

func (w *watcher) eventOf(ev *clientv3.Event) (event, error) {
	o := w.set.r.model.find(ev.Kv.Key)
	if o == nil {
		return event{}, fmt.Errorf("event of unknown key %q", ev.Kv.Key)
	}
	e := event{object: o, deleted: ev.Type == clientv3.EventTypeDelete, now: w.set.r.model.stateOf(ev.Kv),
		hasPrev: ev.PrevKv != nil}
	if e.deleted {
		if len(ev.Kv.Value) > 0 {
			return e, fmt.Errorf("the deletion of %s carries a value", o.key)
		}
		e.now.hash = 0 // an expected deletion holds the revision only
	}
	if e.hasPrev {
		if string(ev.PrevKv.Key) != o.key {
			return e, fmt.Errorf("the event of %s has %q before it", o.key, ev.PrevKv.Key)
		}
		e.prev = w.set.r.model.stateOf(ev.PrevKv)
	}
	return e, nil
}

// wait returns when done is true, which is called with w locked. It fails if
// the watch ends, or nothing arrives for RetryFor.
func (w *watcher) wait(ctx context.Context, done func() bool) error {
	stalled := time.NewTimer(w.set.r.cfg.RetryFor)
	defer stalled.Stop()
	newest := int64(-1)
	for {
		w.mu.Lock()
		ok, err, changed, last := done(), w.err, w.changed, w.newest
		w.mu.Unlock()
		switch {
		case ok:
			return nil
		case err != nil:
			return fmt.Errorf("watch %s: %w", w.prefix, err)
		}
		if last != newest {
			newest = last
			stalled.Reset(w.set.r.cfg.RetryFor)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-stalled.C:
			return fmt.Errorf("watch %s: stuck at revision %d", w.prefix, last)
		}
	}
}

// complete reports whether everything up to rev has come; w must be locked. An event at rev
// proves it as well, because all events of a revision come together: etcd reports no progress
// for a watch that was resumed after the newest revision.
func (w *watcher) complete(rev int64) bool { return max(w.reached, w.newest) >= rev }

// check waits until each watcher has received everything up to rev, and compares that with
// the model. No write may be in progress.
func (ws *watches) check(ctx context.Context, rev int64) {
	type span struct {
		prefix string
		from   int64
	}
	want := map[span][]event{} // watchers of the same share it
	for _, w := range ws.all {
		s := span{w.prefix, w.from}
		if _, ok := want[s]; ok {
			continue
		}
		objects := []*object{w.one}
		if w.one == nil {
			objects = ws.r.model.sorted(w.prefix)
		}
		want[s] = eventsOf(objects, w.from-1, rev)
	}
	for _, w := range ws.all {
		events := want[span{w.prefix, w.from}]
		last := w.from - 1
		if n := len(events); n > 0 {
			last = events[n-1].now.mod
		}
		done := func() bool { return w.complete(rev) }
		if w.one != nil { // progress is of a stream: not asked for
			done = func() bool { return w.complete(last) }
		}
		if err := w.wait(ctx, done); err != nil {
			ws.r.verify.fail("%v; want progress to %d", err, rev)
		}
	}
	if ctx.Err() != nil {
		return
	}
	for _, w := range ws.all {
		w.compare(want[span{w.prefix, w.from}], rev)
	}
}

// compare checks w's events up to rev against want. Events of objects whose
// state is unknown are left out on both sides.
func (w *watcher) compare(want []event, rev int64) {
	v := w.set.r.verify
	unknown := func(e event) bool { _, _, _, lost := e.object.settled(rev); return lost }
	w.mu.Lock()
	got := slices.Clone(w.events)
	w.mu.Unlock()
	got = slices.DeleteFunc(got, func(e event) bool { return e.now.mod > rev || unknown(e) })
	want = slices.DeleteFunc(slices.Clone(want), unknown)
	v.events.Add(int64(len(want)))
	same := 0
	for same < min(len(got), len(want)) && got[same] == want[same] {
		same++
	}
	got, want = got[same:], want[same:]
	v.difference(got, want)
	switch {
	case len(got) > 0 && len(want) > 0:
		v.fail("watch %s from %d: event %d is %v, want %v", w.prefix, w.from, same, got[0], want[0])
	case len(got) > 0:
		v.fail("watch %s from %d: %d events too many, the first %v", w.prefix, w.from, len(got), got[0])
	case len(want) > 0:
		v.fail("watch %s from %d: %d events missing, the first %v", w.prefix, w.from, len(want), want[0])
	}
}

func (e event) String() string {
	kind, prev := "put", "nothing"
	if e.deleted {
		kind = "delete"
	}
	if e.hasPrev {
		prev = e.prev.String()
	}
	return fmt.Sprintf("%s %s %v, before it %s", kind, e.object.key, e.now, prev)
}
