package member

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// view is what a node has seen of the members. Safe for concurrent use.
//
// It has the clock by which members count as alive: the time during which this
// node could list them. Each list moves it on by the time since the one before, but by no more than
// two intervals: how much more time went by says nothing if this node could not read, or no process could send
// heartbeats. A row seen for the first time counts as one that has just changed, unless Join found its process silent.
type view struct {
	self     uint64          // incarnation
	silenced map[uint64]bool // incarnations of processes that had ended; only Join writes it

	mu      sync.Mutex
	at      time.Time // when the latest read that was applied began
	clock   time.Duration
	seen    map[uint64]*sighting
	members []Member // ordered by id
}

// sighting is what was seen of one member over time.
type sighting struct {
	incarnation, heartbeat uint64
	since                  time.Duration // on the view's clock: the last change
	changed                bool          // it was seen to change, so the member was alive at some time
	gone                   bool          // its process left a challenge unanswered, and sent no heartbeat since
	unread                 bool          // its row was not read since it is gone
}

func newView(incarnation uint64) *view {
	return &view{self: incarnation, silenced: map[uint64]bool{}, seen: map[uint64]*sighting{}}
}

// apply records what a read of all rows found, which began at now. Of reads that overtook each other, the one that
// began last counts.
func (v *view) apply(t table, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now.Before(v.at) {
		return
	}
	if !v.at.IsZero() {
		v.clock += min(now.Sub(v.at), 2*timing.MemberList)
	}
	v.at = now
	seen := make(map[uint64]*sighting, len(t.rows))
	members := make([]Member, len(t.rows))
	for i, e := range t.rows {
		s := v.observe(e.Member)
		seen[e.ID] = s
		members[i] = e.Member
		members[i].Alive = v.alive(e.Member, s)
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	v.seen, v.members = seen, members
}

// observe returns the sighting of m, updated; v.mu is held.
func (v *view) observe(m Member) *sighting {
	s := v.seen[m.ID]
	if s == nil {
		return &sighting{incarnation: m.Incarnation, heartbeat: m.Heartbeat, since: v.clock, gone: v.silenced[m.Incarnation]}
	}
	if s.unread && s.incarnation == m.Incarnation { // it may have sent this heartbeat before
		s.heartbeat, s.unread = m.Heartbeat, false
	}
	if s.incarnation != m.Incarnation || s.heartbeat < m.Heartbeat {
		*s = sighting{incarnation: m.Incarnation, heartbeat: m.Heartbeat, since: v.clock, changed: true}
	}
	return s
}

func (v *view) alive(m Member, s *sighting) bool {
	switch {
	case !m.running() || s.gone:
		return false
	case m.Incarnation == v.self:
		return true
	}
	return v.clock-s.since < timing.MissedHeartbeats*timing.MemberHeartbeat
}

// markGone records that a process has left a challenge unanswered.
func (v *view) markGone(id, incarnation uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.seen[id]; s != nil && s.incarnation == incarnation {
		s.gone, s.unread = true, true
	}
}

// last returns the members as they were last seen.
func (v *view) last() []Member {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.members
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
