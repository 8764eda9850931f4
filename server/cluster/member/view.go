package member

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// view is what a node has seen of the members. Safe for concurrent use.
//
// It has the only clock by which processes are judged: the time during which this
// node could look at the table. Each look that succeeds moves it on by the time since
// the look before, but by no more than maxStep: how much more time went by says nothing
// if this node could not look, or no process could send heartbeats.
type view struct {
	self uint64 // incarnation

	mu      sync.Mutex
	maxStep time.Duration
	reads   uint64 // numbers given to reads as they begin
	applied uint64 // the latest full read that was applied
	at      time.Time
	clock   time.Duration
	seen    map[uint64]*sighting
	members []Member // ordered by id
}

// sighting is what was seen of one member over time.
type sighting struct {
	incarnation, heartbeat uint64
	since                  time.Duration // on the view's clock: the last change
	heard                  time.Time     // when it gave a sign of life by another way last
	changed                bool          // it was seen to change, so the member was alive at some time
	asked                  bool          // it has a challenge
	askedAt                time.Duration // on the view's clock: since then
	deaf                   bool          // its process learns only from the table that the lock is kept
	gone                   bool          // its process left challenges unanswered since
}

func newView(incarnation uint64, maxStep time.Duration) *view {
	return &view{self: incarnation, maxStep: maxStep, seen: map[uint64]*sighting{}}
}

// begin must be called before a read of the table begins; apply and sight take its
// number.
func (v *view) begin() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reads++
	return v.reads
}

// tick moves the clock on to a read that succeeded and began at now; v.mu is held.
func (v *view) tick(now time.Time) {
	if !v.at.IsZero() {
		v.clock += min(max(now.Sub(v.at), 0), v.maxStep)
	}
	if now.After(v.at) {
		v.at = now
	}
}

// apply takes in what the given read of all rows found, begun at now, and returns the
// members. Of reads that overtook each other, the one that began last counts.
func (v *view) apply(t table, read uint64, now time.Time) []Member {
	v.mu.Lock()
	defer v.mu.Unlock()
	if read < v.applied {
		return v.members
	}
	v.tick(now)
	v.applied = read
	seen := make(map[uint64]*sighting, len(t))
	members := make([]Member, len(t))
	for i, e := range t {
		s := v.note(e)
		seen[e.ID] = s
		members[i] = Member{
			ID: e.ID, Name: e.name, PeerURLs: e.PeerURLs, ClientURLs: e.ClientURLs,
			Version: e.Version, Incarnation: e.Incarnation, Stopped: e.Stopped,
			Alive: v.alive(e, s), Heartbeat: e.Heartbeat, Fingerprint: e.Fingerprint, Protocol: e.Protocol,
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	v.seen, v.members = seen, members
	return members
}

// note returns the sighting of e's member, updated; v.mu is held.
func (v *view) note(e entry) *sighting {
	s := v.seen[e.ID]
	if s == nil {
		s = &sighting{incarnation: e.Incarnation, heartbeat: e.Heartbeat, since: v.clock}
	} else if s.incarnation != e.Incarnation || s.heartbeat < e.Heartbeat {
		heard := s.heard
		if s.incarnation != e.Incarnation {
			heard = time.Time{}
		}
		*s = sighting{incarnation: e.Incarnation, heartbeat: e.Heartbeat, since: v.clock, heard: heard, changed: true}
	}
	if asked := e.Challenge != 0; asked != s.asked {
		s.asked, s.askedAt = asked, v.clock
	}
	if !s.heard.IsZero() {
		s.since = max(s.since, v.clock-max(v.at.Sub(s.heard), 0))
	}
	s.deaf = e.running() && !e.Hears
	return s
}

// allHear reports whether all running members but id, as they were last seen, hear the holder of
// the lock by another way than the table.
func (v *view) allHear(id uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for other, s := range v.seen {
		if other != id && s.deaf {
			return false
		}
	}
	return true
}

// alone reports whether no other member than id was alive when the members were last seen.
func (v *view) alone(id uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !slices.ContainsFunc(v.members, func(m Member) bool { return m.ID != id && m.Alive })
}

// hear takes in that a member's process gave a sign of life by another way than the table at that time; zero: that
// none will come for now.
func (v *view) hear(id uint64, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.seen[id]; s != nil {
		s.heard = at
		s.changed = s.changed || !at.IsZero()
	}
}

// heardAgo returns how long ago a member's process gave such a sign of life.
func (v *view) heardAgo(id uint64) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.seen[id]; s != nil && !s.heard.IsZero() {
		return time.Since(s.heard)
	}
	return math.MaxInt64
}

// setStep sets how much the next read moves the clock on at most.
func (v *view) setStep(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.maxStep = d
}

func (v *view) alive(e entry, s *sighting) bool {
	switch {
	case e.Incarnation == 0 || e.Stopped || s.gone:
		return false
	case e.Incarnation == v.self:
		return true
	}
	return v.clock-s.since < timing.MissedHeartbeats*e.interval()
}

// glanced takes in that a read of some rows, begun at now, succeeded, and what it found
// of one member; nil: it found none. It returns the clock, and the member's sighting.
func (v *view) glanced(e *entry, read uint64, now time.Time) (clock time.Duration, s sighting) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tick(now)
	if e == nil {
		return v.clock, s
	}
	if known := v.seen[e.ID]; known != nil && read < v.applied {
		return v.clock, *known
	}
	latest := v.note(*e)
	v.seen[e.ID] = latest
	return v.clock, *latest
}

// condemn takes in that the process that wrote e has left challenges unanswered.
func (v *view) condemn(e entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.seen[e.ID]; s != nil && s.incarnation == e.Incarnation && s.heartbeat == e.Heartbeat {
		s.gone = true
	}
}

// last returns the members as they were last seen.
func (v *view) last() []Member {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.members
}

// changed reports whether a member's process was seen to send a heartbeat.
func (v *view) changed(id uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.seen[id]
	return s != nil && s.changed
}

// provenAlive reports whether a member other than id is alive, and not just
// because this node has not looked for long enough.
func (v *view) provenAlive(id uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.members, func(m Member) bool {
		return m.ID != id && m.Alive && (m.Incarnation == v.self || v.seen[m.ID].changed)
	})
}
