package node

import (
	"context"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// The verdicts on a leader that refuses connections.
const (
	verdictAlive   = "alive"
	verdictGone    = "gone"
	verdictUnknown = "unknown"
)

// suspect notes that the leader's peer URLs refuse connections. That proves nothing: the
// URLs may be wrong, or a firewall may reject what is sent to them.
func (n *Node) suspect(member uint64, err error) {
	select {
	case n.suspicions <- suspicion{member, err}:
	default:
	}
}

// investigate finds out whether leaders that are suspected live.
func (n *Node) investigate(ctx context.Context) {
	type pause struct {
		length time.Duration
		until  time.Time
	}
	pauses := make(map[uint64]pause) // by member
	for {
		var s suspicion
		select {
		case <-ctx.Done():
			return
		case s = <-n.suspicions:
		}
		if n.fed.Swap(false) {
			clear(pauses)
		}
		p := pauses[s.member]
		if holder, _ := n.current(); holder != s.member || time.Now().Before(p.until) {
			continue
		}
		p.length = min(max(2*p.length, timing.Respite), timing.LongestRespite)
		n.judge(ctx, s, p.length)
		p.until = time.Now().Add(p.length)
		pauses[s.member] = p
	}
}

// judge asks the leader, through the database, to prove that it lives. An answer to a
// challenge in its member row, or any other heartbeat, proves it.
func (n *Node) judge(ctx context.Context, s suspicion, next time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timing.LookTimeout+n.cfg.deathSilence)
	defer cancel()
	gone, err := n.members.Suspect(ctx, s.member, n.cfg.deathSilence)
	log := n.log.With("leader", fmt.Sprintf("%x", s.member), "reason", s.err)
	verdict := verdictAlive
	switch {
	case n.working.Err() != nil, !gone && n.members.Holder() != s.member:
		return // the node ends, or another one has the lock by now
	case err != nil:
		verdict = verdictUnknown
		log.Warn("the leader's peer URLs refuse connections; whether it lives cannot be read from the database, so its lock has to expire", "error", err)
	case gone:
		verdict = verdictGone
		log.Warn("the leader's process is gone: its peer URLs refuse connections, and it answers no challenge")
	default:
		m, _, _ := n.members.Find(ctx, s.member)
		log.Warn("the leader's peer URLs refuse connections, but the leader lives and keeps the lock; this member cannot forward requests to it: "+
			"check --initial-advertise-peer-urls and --listen-peer-urls of that member, and firewalls",
			"name", m.Name, "peer_urls", m.PeerURLs, "checked_again_after", next)
	}
	n.metrics.suspicions.WithLabelValues(verdict).Inc()
}
