package member

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Join makes this process the member cfg.Name: under the id the name has; else under
// that of a member that was added with the same peer URLs; else under a new one. It
// must come before anything else that looks up the id by the name. The caller must
// call Run at once, because a process that does not answer challenges can be
// replaced.
//
// If the name's last process did not say that it stopped, Join challenges it and
// waits until it has been silent. It fails with ErrRunning if that process answers,
// unless cfg.Force is set. In the same way it fails with ErrPeerURLExists if the process
// of another member that has one of the same peer URLs answers, and with ErrProtocol if that of
// another member does not understand this program, or is not understood by it.
func Join(ctx context.Context, cfg Config) (*Registry, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Registry{
		cfg: cfg, store: cfg.Store, log: cfg.Logger,
		began: time.Now(), incarnation: newID(), silenced: make(map[uint64]bool), ended: make(chan struct{}),
		looked: make(chan struct{}), asked: make(chan struct{}, 1), pollNow: make(chan struct{}, 1),
	}
	r.view = newView(r.incarnation)
	if r.metrics, err = newMetrics(cfg.Registerer, r.view); err != nil {
		return nil, err
	}
	for attempt, joined := 1, false; !joined; attempt++ {
		if joined, err = r.join(ctx); err != nil {
			err = again(ctx, err, attempt)
		}
		if err != nil {
			r.metrics.withdraw()
			return nil, fmt.Errorf("joining as member %q: %w", cfg.Name, err)
		}
	}
	r.elector = newElector(r)
	self := r.Self()
	r.log.Info("joined", "member", self.Name, "member_id", fmt.Sprintf("%x", self.ID), "peer_urls", self.PeerURLs)
	return r, nil
}

// join looks at the table and reports whether this process is the member; if
// not, it tries to become it, for the next look to confirm.
func (r *Registry) join(ctx context.Context) (bool, error) {
	counter, err := readChanges(ctx, r.store)
	if err != nil {
		return false, err
	}
	read, now := r.view.begin(), time.Now()
	t, err := readTable(ctx, r.store)
	if err != nil {
		return false, err
	}
	r.trips.observe(time.Since(now))
	old, known := t.named(r.cfg.Name)
	if known && old.Incarnation == r.incarnation {
		r.id = old.ID
		self, _ := withID(r.view.apply(t, read, now), r.id)
		r.cfg.Certificate.Published(self.Fingerprint)
		r.warnOfURLs(t, self)
		return true, nil
	}
	if known && old.running() && !r.silenced[old.Incarnation] {
		return false, r.replace(ctx, old)
	}
	for _, e := range t {
		if e.ID == old.ID || !e.running() || r.silenced[e.Incarnation] {
			continue
		}
		if err := CheckProtocol(r.cfg.protocol, e.Protocol); err != nil {
			return false, r.awaitSilence(ctx, e, err, ", and is of version "+e.Version)
		}
	}
	batch := r.store.BeginBatchWrite()
	if err := counter.swap(batch); err != nil {
		return false, err
	}
	own := r.become(t, old, batch)
	if other, ok := t.find(func(e entry) bool {
		return e.ID != own.ID && e.running() && !r.silenced[e.Incarnation] && e.shares(own.PeerURLs)
	}); ok {
		return false, r.awaitSilence(ctx, other, ErrPeerURLExists,
			"; each member needs its own --initial-advertise-peer-urls")
	}
	return false, batch.Commit(ctx)
}

// warnOfURLs logs what may keep others from reaching this member at its peer URLs.
func (r *Registry) warnOfURLs(t table, self Member) {
	if other, ok := t.sharing(self.PeerURLs, r.id); ok {
		r.log.Warn("a member that does not run has one of this one's peer URLs; remove it, or start it with another --initial-advertise-peer-urls",
			"peer_urls", self.PeerURLs, "other", other.name, "other_id", fmt.Sprintf("%x", other.ID))
	}
	others := slices.ContainsFunc(t, func(e entry) bool { return e.ID != r.id && e.running() })
	for _, e := range t {
		if others && e.running() && len(e.PeerURLs) == 0 {
			r.log.Warn("a member has no peer URL: while it leads, the others can neither forward writes to it nor answer linearizable reads; "+
				"set --listen-peer-urls and --initial-advertise-peer-urls of that member", "name", e.name)
		}
	}
	local := slices.ContainsFunc(self.PeerURLs, isLocal)
	if other, ok := t.find(func(e entry) bool {
		return e.ID != r.id && e.running() && len(e.PeerURLs) > 0 && len(self.PeerURLs) > 0 &&
			slices.ContainsFunc(e.PeerURLs, isLocal) != local
	}); ok {
		r.log.Warn("a member advertises a loopback peer URL, and another member one of the network: they reach each other only on one host; check --initial-advertise-peer-urls",
			"peer_urls", self.PeerURLs, "other", other.name, "other_peer_urls", other.PeerURLs)
	}
}

// replace makes sure that the process which kept the member's row so far has ended.
// It fails with ErrRunning if that process, or another one, proves that it runs.
func (r *Registry) replace(ctx context.Context, old entry) error {
	if r.cfg.Force {
		r.log.Warn("replacing a process that did not say that it stopped; if it still runs, it stops serving",
			"member", old.name, "peer_urls", old.PeerURLs, "heartbeat", old.Heartbeat)
		r.silenced[old.Incarnation] = true
		return nil
	}
	r.log.Info("waiting until the previous process of this member has been silent, because it did not say that it stopped",
		"member", old.name, "peer_urls", old.PeerURLs, "heartbeat", old.Heartbeat, "silence", timing.MissedPolls*r.cfg.poll)
	return r.awaitSilence(ctx, old, ErrRunning, "")
}

// awaitSilence challenges the process that keeps the row e, and waits until it has been silent.
// If the process answers, awaitSilence fails with refusal, what was seen, and advice.
func (r *Registry) awaitSilence(ctx context.Context, e entry, refusal error, advice string) error {
	silent, seen, err := challenge(ctx, r.store, e, max(r.cfg.poll, r.trips.pause(e.roundTrip())))
	switch {
	case err != nil:
		return err
	case !silent:
		return fmt.Errorf("%w: %s%s", refusal, seen, advice)
	}
	r.silenced[e.Incarnation] = true
	return nil
}

// become adds to batch what makes this process the member, and returns the member's
// new row.
func (r *Registry) become(t table, old entry, batch sqlstore.BatchWrite) entry {
	own := entry{name: r.cfg.Name, row: old.row}
	if added, ok := t.added(r.cfg.PeerURLs); ok && own.ID == 0 {
		own.row = added.row
		batch.Del(added.key())
	}
	if own.ID == 0 {
		own.ID = newID()
	}
	if !slices.Equal(own.StartURLs, r.cfg.PeerURLs) {
		own.PeerURLs, own.StartURLs = r.cfg.PeerURLs, r.cfg.PeerURLs
	}
	own.ClientURLs, own.Version = r.cfg.ClientURLs, r.cfg.Version
	own.Incarnation, own.Heartbeat = r.incarnation, 0
	own.Stopped, own.Challenge = false, 0
	r.describe(&own.row)
	if old.raw == nil {
		batch.PutIfNotExist(own.key(), own.encode())
	} else {
		batch.CAS(own.key(), own.encode(), old.raw)
	}
	return own
}

// describe sets what the row says of this process.
func (r *Registry) describe(own *row) {
	own.Protocol = r.cfg.protocol
	own.RoundTrip = r.trips.longest.Load() / int64(time.Microsecond)
	own.Fingerprint = r.cfg.Certificate.Fingerprint() // it may have changed, too
}

// newID returns a random number that is not 0.
func newID() uint64 { return rand.Uint64() | 1 }
