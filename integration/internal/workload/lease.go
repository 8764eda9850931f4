package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// sharedLease is a lease that a worker attaches to events until enough share it.
type sharedLease struct {
	id   clientv3.LeaseID
	used int
}

// granted is a lease of the model.
type granted struct {
	id   clientv3.LeaseID
	ttl  int64
	keys []*object // in key order, once complete
}

// grant asks for a lease and has it revoked at the end of the run. A grant
// whose answer was lost leaves a lease without keys, which expires.
func (w *worker) grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	var resp *clientv3.LeaseGrantResponse
	err := w.request(ctx, "grant", func(ctx context.Context, _ *sample) (err error) {
		resp, err = w.client.Grant(ctx, ttl)
		return err
	})
	if err != nil {
		return nil, err
	}
	w.r.verify.answers.Add(1)
	if resp.TTL < ttl || resp.ID == 0 {
		w.r.verify.fail("grant: lease %x with TTL %d, want at least %d", resp.ID, resp.TTL, ttl)
	}
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.leases = append(w.r.leases, resp.ID)
	return resp, nil
}

// leased attaches the worker's lease to o, taking a new one when enough keys
// share it.
func (w *worker) leased(ctx context.Context, o *object, ttl int64) error {
	if w.lease.id == 0 || w.lease.used >= w.r.cfg.KeysPerLease {
		resp, err := w.grant(ctx, ttl)
		if err != nil {
			return err
		}
		w.lease = sharedLease{id: resp.ID}
	}
	w.lease.used++
	o.lease = int64(w.lease.id)
	return nil
}

// runLease creates events that share leases, renews the leases, queries and revokes them, and lets
// one expire.
func (r *runner) runLease(ctx context.Context) (err error) {
	watchPhase := r.begin("watch", 0)
	ws, err := r.openWatches(ctx, watchPhase)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ws.close()) }()
	events := ws.watch(r.model.gen.resourcePrefix(eventKind), r.model.start+1, nil)
	r.end(watchPhase)

	r.measured(ctx, "create", 0, func(ctx context.Context, w *worker, _ int64) error {
		return w.create(ctx, eventKind, r.cfg.LeaseTTL)
	})
	leases := r.attached()
	r.loaded(ctx, "renew", len(leases), func(ctx context.Context, w *worker, i int64) error {
		return w.renew(ctx, leases[i])
	})
	r.loaded(ctx, "revoke", len(leases), func(ctx context.Context, w *worker, i int64) error {
		return w.revoke(ctx, leases[i], events)
	})
	r.loaded(ctx, "expire", 1, func(ctx context.Context, w *worker, _ int64) error { return w.expire(ctx, events) })
	ws.check(ctx, r.model.revision.Load())
	return nil
}

// attached returns all leases with the keys attached to them.
func (r *runner) attached() []*granted {
	byID := map[clientv3.LeaseID]*granted{}
	r.mu.Lock()
	var all []*granted
	for _, id := range r.leases {
		g := &granted{id: id, ttl: r.cfg.LeaseTTL}
		byID[id] = g
		all = append(all, g)
	}
	r.mu.Unlock()
	for _, o := range r.model.sorted(r.model.gen.prefix + "/") {
		s, live := o.latest()
		if g := byID[clientv3.LeaseID(s.lease)]; live && g != nil { // not an earlier run's
			g.keys = append(g.keys, o)
		}
	}
	return all
}

// grantNext grants a lease that no key holds.
func (w *worker) grantNext(ctx context.Context) error {
	_, err := w.grant(ctx, w.r.cfg.LeaseTTL)
	return err
}

// runKeepalive renews leases, of which each client has one.
func (r *runner) runKeepalive(ctx context.Context) error {
	r.loaded(ctx, "load", r.cfg.Clients, func(ctx context.Context, w *worker, _ int64) error { return w.grantNext(ctx) })
	leases := r.attached()
	if len(leases) == 0 {
		return fmt.Errorf("load: %w", ErrNothingSucceeded)
	}
	r.measured(ctx, "keepalive", 0, func(ctx context.Context, w *worker, i int64) error {
		return w.keepalive(ctx, leases[i%int64(len(leases))])
	})
	return nil
}

// renew keeps a lease alive once, and checks the answer.
func (w *worker) renew(ctx context.Context, g *granted) error {
	if err := w.keepalive(ctx, g); err != nil {
		return err
	}
	var resp *clientv3.LeaseTimeToLiveResponse
	err := w.request(ctx, "time to live", func(ctx context.Context, s *sample) (err error) {
		if resp, err = w.client.TimeToLive(ctx, g.id, clientv3.WithAttachedKeys()); err == nil {
			s.keys = len(resp.Keys)
		}
		return err
	})
	if err == nil {
		w.checkTimeToLive(g, resp)
	}
	return err
}

// keepalive keeps a lease alive once.
func (w *worker) keepalive(ctx context.Context, g *granted) error {
	return w.request(ctx, "keepalive", func(ctx context.Context, _ *sample) error {
		resp, err := w.client.KeepAliveOnce(ctx, g.id)
		if err != nil {
			return err
		}
		w.r.verify.answers.Add(1)
		if resp.ID != g.id || resp.TTL < g.ttl {
			w.r.verify.fail("keepalive %x: lease %x with TTL %d, want at least %d", g.id, resp.ID, resp.TTL, g.ttl)
		}
		return nil
	})
}

func (w *worker) checkTimeToLive(g *granted, resp *clientv3.LeaseTimeToLiveResponse) {
	v := w.r.verify
	v.answers.Add(1)
	if resp.GrantedTTL < g.ttl || resp.TTL > resp.GrantedTTL || resp.TTL <= 0 {
		v.fail("lease %x: granted TTL %d, TTL %d, want %d", g.id, resp.GrantedTTL, resp.TTL, g.ttl)
	}
	got := make([]string, 0, len(resp.Keys))
	for _, k := range resp.Keys {
		got = append(got, string(k))
	}
	slices.Sort(got)
	want := make([]string, 0, len(g.keys))
	for _, o := range g.keys {
		want = append(want, o.key)
	}
	if !slices.Equal(got, want) {
		if _, lost := w.r.model.revisions(); lost > 0 {
			v.skipped.Add(1)
			return
		}
		v.fail("lease %x holds %d keys, want %d, or others", g.id, len(got), len(want))
	}
}

// revoke revokes a lease and waits until its keys are deleted.
func (w *worker) revoke(ctx context.Context, g *granted, events *watcher) error {
	for _, o := range g.keys {
		o.claim()
		defer o.release()
	}
	err := w.request(ctx, "revoke", func(ctx context.Context, _ *sample) error {
		_, err := w.client.Revoke(ctx, g.id)
		return err
	})
	// clientv3 repeats revocations by itself, so that "not found" may be
	// the answer to one that took effect: the watch shows which.
	if err == nil || isLeaseNotFound(err) {
		return w.vanished(ctx, g, events)
	}
	for _, o := range g.keys {
		o.lose()
	}
	return err
}

// vanished waits until a watch reports that g's keys are deleted, and adds the deletions to the
// model: no answer names their revision. The keys must be deleted in one revision, in key order.
func (w *worker) vanished(ctx context.Context, g *granted, events *watcher) error {
	if len(g.keys) == 0 {
		return nil
	}
	holders := map[*object]bool{}
	for _, o := range g.keys {
		holders[o] = true
	}
	var gone []event
	from := 0 // first event that was not examined
	err := events.wait(ctx, func() bool {
		for ; from < len(events.events); from++ {
			if e := events.events[from]; e.deleted && holders[e.object] {
				gone = append(gone, e)
			}
		}
		return len(gone) >= len(g.keys)
	})
	if err != nil {
		w.r.verify.fail("lease %x is gone, but not its keys: %v", g.id, err)
		return err
	}
	w.r.verify.answers.Add(1)
	for i, e := range gone {
		if len(gone) != len(g.keys) || e.object != g.keys[i] || e.now.mod != gone[0].now.mod {
			w.r.verify.fail("lease %x: deletion %d of %d is %v; want %d at %d", g.id, i, len(gone), e, len(g.keys),
				gone[0].now.mod)
			break
		}
	}
	for _, e := range gone {
		w.r.model.commit(e.object, version{state: state{mod: e.now.mod}, deleted: true})
	}
	return nil
}

// expire attaches a few keys to a lease of the shortest TTL, and waits until it has expired.
func (w *worker) expire(ctx context.Context, events *watcher) error {
	granting := time.Now()
	resp, err := w.grant(ctx, 1)
	if err != nil {
		return err
	}
	g := &granted{id: resp.ID, ttl: resp.TTL}
	for range 10 {
		o := w.r.model.add(eventKind)
		o.claim()
		defer o.release()
		o.lease = int64(g.id)
		if err := w.put(ctx, o); err != nil {
			return err
		}
		g.keys = append(g.keys, o)
	}
	slices.SortFunc(g.keys, compareKeys)
	if err := w.vanished(ctx, g, events); err != nil {
		return err
	}
	if lived := time.Since(granting); lived < time.Duration(resp.TTL)*time.Second {
		w.r.verify.fail("lease %x expired after %v, granted for %d s", g.id, lived, resp.TTL)
	}
	return nil
}
