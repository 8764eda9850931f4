package cluster

import (
	"context"
	"fmt"
	"time"
)

const (
	// deathSilence is Config.deathSilence's default. A leader looks for challenges
	// every 100 ms, and renews its lock every 250 ms.
	deathSilence = 240 * time.Millisecond
	// A leader that refuses connections and lives is left alone for respite, doubled
	// each time up to longestRespite, until a feed works again. So an address that is
	// wrong costs few challenges and log lines, and two members that stall now and
	// then while neither reaches the other do not take the lock from each other in turn.
	respite        = time.Second
	longestRespite = time.Minute
)

// The verdicts on a leader that refuses connections.
const (
	verdictAlive   = "alive"
	verdictGone    = "gone"
	verdictUnknown = "unknown"
)

// suspicion is that a leader's process may be gone, and why.
type suspicion struct {
	member uint64
	err    error
}

// suspect notes that the leader's peer URLs refuse connections. That is no proof: the
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
		p.length = min(max(2*p.length, respite), longestRespite)
		n.judge(ctx, s, p.length)
		p.until = time.Now().Add(p.length)
		pauses[s.member] = p
	}
}

// judge asks the leader, through the database, to prove that it lives, and reports it
// dead to the elector if it does not. Two things prove it: an answer to a challenge in
// its member row, and a renewal of its lock.
func (n *Node) judge(ctx context.Context, s suspicion, next time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout+n.cfg.deathSilence)
	defer cancel()
	identity := identityOf(s.member)
	n.elector.Suspect(identity)
	silent, err := n.members.Silent(ctx, s.member, n.cfg.deathSilence)
	log := n.log.With("leader", fmt.Sprintf("%x", s.member), "reason", s.err)
	verdict := verdictAlive
	switch {
	case ctx.Err() != nil && n.working.Err() != nil, n.elector.Holder() != identity:
		return // the node ends, or another one has the lock by now
	case err != nil:
		verdict = verdictUnknown
		log.Warn("the leader's peer URLs refuse connections; whether it lives cannot be read from the database, so its lock has to expire", "error", err)
	case silent && n.elector.ReportDead(identity):
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
