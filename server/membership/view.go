package membership

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// missedHeartbeats is after how many heartbeats without a change a member counts
// as not alive: one may be late, and one may fall between two looks.
const missedHeartbeats = 3

// view is what a node has seen of the members. Safe for concurrent use.
type view struct {
	self    uint64 // incarnation
	maxStep time.Duration

	mu      sync.Mutex
	reads   uint64 // numbers given to reads as they begin
	applied uint64 // the latest of those that were applied
	at      time.Time
	seen    map[uint64]*sighting
	members []Member // ordered by id
}

// sighting is what was seen of one member over time.
type sighting struct {
	incarnation, heartbeat uint64
	// quiet is for how long the heartbeat has not changed. A look adds one
	// interval at most, this node's or the member's, whichever is shorter: how
	// much more time went by says nothing if nobody could look, or beat.
	quiet time.Duration
	// changed: it was seen to change, so the member was alive at some time.
	changed bool
}

func newView(incarnation uint64, interval time.Duration) *view {
	return &view{self: incarnation, maxStep: interval, seen: map[uint64]*sighting{}}
}

// begin must be called before a read of the table begins; apply takes its number.
func (v *view) begin() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reads++
	return v.reads
}

// apply takes in what the given read found, begun at now, and returns the
// members. Of reads that overtook each other, the one that began last counts.
func (v *view) apply(t table, read uint64, now time.Time) []Member {
	v.mu.Lock()
	defer v.mu.Unlock()
	if read < v.applied {
		return v.members
	}
	step := min(max(now.Sub(v.at), 0), v.maxStep)
	if v.applied == 0 {
		step = 0
	}
	v.applied, v.at = read, now
	seen := make(map[uint64]*sighting, len(t))
	members := make([]Member, len(t))
	for i, e := range t {
		s := v.seen[e.ID]
		switch {
		case s == nil:
			s = &sighting{}
		case s.incarnation != e.Incarnation || s.heartbeat < e.Heartbeat:
			s.quiet, s.changed = 0, true
		default:
			s.quiet += min(step, e.interval())
		}
		s.incarnation, s.heartbeat = e.Incarnation, e.Heartbeat
		seen[e.ID] = s
		members[i] = Member{
			ID: e.ID, Name: e.name, PeerURLs: e.PeerURLs, ClientURLs: e.ClientURLs,
			Version: e.Version, Incarnation: e.Incarnation, Stopped: e.Stopped,
			Alive: v.alive(e, s), Heartbeat: e.Heartbeat, Fingerprint: e.Fingerprint,
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	v.seen, v.members = seen, members
	return members
}

func (v *view) alive(e entry, s *sighting) bool {
	switch {
	case e.Incarnation == 0 || e.Stopped:
		return false
	case e.Incarnation == v.self:
		return true
	}
	return s.quiet < missedHeartbeats*e.interval()
}

// last returns the members as they were last seen.
func (v *view) last() []Member {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.members
}

// provenAlive reports whether a member other than id is alive, and not just
// because nobody has looked for long enough.
func (v *view) provenAlive(id uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.members, func(m Member) bool {
		return m.ID != id && m.Alive && (m.Incarnation == v.self || v.seen[m.ID].changed)
	})
}
