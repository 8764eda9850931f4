package member

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/server/coalesce"
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
		began: time.Now(), incarnation: newID(),
		listed: make(chan struct{}), pollNow: make(chan struct{}, 1),
	}
	r.member, r.end = context.WithCancelCause(context.Background())
	r.period, r.endPeriod = context.WithTimeout(context.Background(), 0)
	r.view = newView(r.incarnation)
	if r.metrics, err = newMetrics(cfg.Registerer, r.view); err != nil {
		return nil, err
	}
	r.elector = newElector(r)
	r.refreshes = coalesce.New(timing.FarTimeout+timing.RefreshPause, r.refresh)
	var t table
	err = commit(ctx, r.store, func(batch sqlstore.BatchWrite, _ bool) error { return r.join(ctx, batch) })
	if err == nil {
		t, err = r.list(ctx)
	}
	if err != nil {
		r.metrics.withdraw()
		return nil, fmt.Errorf("joining as member %q: %w", cfg.Name, err)
	}
	self := r.Self()
	r.warnOfURLs(t, self)
	r.log.Info("joined", "member", self.Name, "member_id", fmt.Sprintf("%x", self.ID), "peer_urls", self.PeerURLs)
	r.log = r.log.With("member", fmt.Sprintf("%x", r.id))
	return r, nil
}

// join adds to batch what makes this process the member, and waits before until the processes that keep it from that
// have been silent.
func (r *Registry) join(ctx context.Context, batch sqlstore.BatchWrite) error {
	for {
		began := time.Now()
		t, err := readTable(ctx, r.store)
		if err != nil {
			return err
		}
		r.trips.observe(time.Since(began))
		old, known := t.named(r.cfg.Name)
		if known && old.Incarnation == r.incarnation {
			r.id = old.ID
			return errDone // a commit of unknown outcome took effect
		}
		own, added := r.become(t, old)
		r.id = own.ID
		blocker, advice, refusal := r.blocker(t, old, own)
		if refusal == nil {
			if added != nil {
				batch.Del(added.key())
			}
			if old.raw == nil {
				batch.PutIfNotExist(own.key(), own.encode())
			} else {
				batch.CAS(own.key(), own.encode(), old.raw)
			}
			return t.count(batch)
		}
		if err := r.awaitSilence(ctx, blocker, refusal, advice); err != nil {
			return err
		}
	}
}

// blocker returns a process that may run, and keeps this one from joining; refusal is nil if there is none. advice is
// what to do if it does run.
func (r *Registry) blocker(t table, old entry, own Member) (e entry, advice string, refusal error) {
	runs := func(e entry) bool { return e.running() && !r.view.silenced[e.Incarnation] }
	if runs(old) {
		return old, "", ErrRunning
	}
	if e, ok := t.find(func(e entry) bool { return runs(e) && CheckProtocol(r.cfg.protocol, e.Protocol) != nil }); ok {
		return e, ", and is of version " + e.Version, CheckProtocol(r.cfg.protocol, e.Protocol)
	}
	if e, ok := t.find(func(e entry) bool { return e.ID != own.ID && runs(e) && e.shares(own.PeerURLs) }); ok {
		return e, "; each member needs its own --initial-advertise-peer-urls", ErrPeerURLExists
	}
	return entry{}, "", nil
}

// warnOfURLs logs what may keep others from reaching this member at its peer URLs.
func (r *Registry) warnOfURLs(t table, self Member) {
	if other, ok := t.sharing(self.PeerURLs, r.id); ok {
		r.log.Warn("a member that does not run has one of this one's peer URLs; remove it, or start it with another "+
			"--initial-advertise-peer-urls",
			"peer_urls", self.PeerURLs, "other", other.Name, "other_id", fmt.Sprintf("%x", other.ID))
	}
	others := slices.ContainsFunc(t.rows, func(e entry) bool { return e.ID != r.id && e.running() })
	for _, e := range t.rows {
		if others && e.running() && len(e.PeerURLs) == 0 {
			r.log.Warn("a member has no peer URL: while it leads, the others can neither forward writes to it nor answer "+
				"linearizable reads; "+
				"set --listen-peer-urls and --initial-advertise-peer-urls of that member", "name", e.Name)
		}
	}
	local := slices.ContainsFunc(self.PeerURLs, isLocal)
	if other, ok := t.find(func(e entry) bool {
		return e.ID != r.id && e.running() && len(e.PeerURLs) > 0 && len(self.PeerURLs) > 0 &&
			slices.ContainsFunc(e.PeerURLs, isLocal) != local
	}); ok {
		r.log.Warn("a member advertises a loopback peer URL, and another member one of the network: they reach each other "+
			"only on one host; check --initial-advertise-peer-urls",
			"peer_urls", self.PeerURLs, "other", other.Name, "other_peer_urls", other.PeerURLs)
	}
}

// awaitSilence challenges the process that keeps the row e, and waits until it has been silent.
// If the process answers, awaitSilence fails with refusal, what was seen, and advice.
func (r *Registry) awaitSilence(ctx context.Context, e entry, refusal error, advice string) error {
	own := e.Name == r.cfg.Name
	switch {
	case own && r.cfg.Force:
		r.log.Warn("replacing a process that did not say that it stopped; if it still runs, it stops serving",
			"member", e.Name, "peer_urls", e.PeerURLs, "heartbeat", e.Heartbeat)
		r.view.silenced[e.Incarnation] = true
		return nil
	case own:
		r.log.Info("waiting until the previous process of this member has been silent, because it did not say "+
			"that it stopped",
			"member", e.Name, "peer_urls", e.PeerURLs, "heartbeat", e.Heartbeat, "silence", timing.MissedPolls*r.cfg.poll)
	}
	seen, err := challenge(ctx, r.store, e, max(r.cfg.poll, r.trips.pause(e.roundTrip())))
	switch {
	case err != nil:
		return err
	case seen != nil:
		return fmt.Errorf("%w: %s%s", refusal, seen, advice)
	}
	r.view.silenced[e.Incarnation] = true
	return nil
}

// become returns the member's new row, and the row of a member that was added and has not started, if this one takes
// its place.
func (r *Registry) become(t table, old entry) (own Member, added *entry) {
	own = old.Member
	own.Name = r.cfg.Name
	if own.ID == 0 {
		own.ID = newID()
		if e, ok := t.find(func(e entry) bool {
			return e.Name == "" && slices.EqualFunc(e.PeerURLs, r.cfg.PeerURLs, sameAddress)
		}); ok {
			own, added = e.Member, &e
			own.Name = r.cfg.Name
		}
	}
	if !slices.Equal(own.StartURLs, r.cfg.PeerURLs) {
		own.PeerURLs, own.StartURLs = r.cfg.PeerURLs, r.cfg.PeerURLs
	}
	own.ClientURLs, own.Version = r.cfg.ClientURLs, r.cfg.Version
	own.Incarnation, own.Heartbeat = r.incarnation, 0
	own.Stopped, own.Challenge = false, 0
	r.describe(&own)
	return own, added
}

// describe sets what the row says of this process.
func (r *Registry) describe(own *Member) {
	own.Protocol = r.cfg.protocol
	own.RoundTrip = r.trips.longest.Load() / int64(time.Microsecond)
	own.Fingerprint = r.cfg.Certificate.Fingerprint() // it may have changed, too
}

// newID returns a random number that is not 0.
func newID() uint64 { return rand.Uint64() | 1 }
