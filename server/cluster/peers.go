package cluster

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/sqlbrain/sqlbrain/server/membership"
	"github.com/sqlbrain/sqlbrain/server/peer"
)

const (
	// probeTimeout bounds one probe of a member's URLs.
	probeTimeout = 5 * time.Second
	// probeInterval is how often a member is probed again whose last probe failed.
	probeInterval = 30 * time.Second
)

// roster is the membership as package peer needs it.
type roster struct{ *membership.Registry }

// Current returns the members as this node last saw them.
func (r roster) Current() []peer.Member {
	cached := r.Cached()
	members := make([]peer.Member, len(cached))
	for i, m := range cached {
		members[i] = peer.Member{ID: m.ID, Name: m.Name, Version: m.Version, Incarnation: m.Incarnation, Fingerprint: m.Fingerprint}
	}
	return members
}

// PeerCredentials returns the credentials of the gRPC server behind the peer URLs.
func (n *Node) PeerCredentials() credentials.TransportCredentials { return n.security.Accept() }

// revokePeers closes connections to and from processes that are no longer members',
// after each look at the table.
func (n *Node) revokePeers(ctx context.Context) {
	for {
		looked := n.members.Looked()
		n.security.Revoke()
		n.pool.Revoke()
		select {
		case <-looked:
		case <-ctx.Done():
			return
		}
	}
}

// probed is what is known of one process of a member.
type probed struct {
	incarnation uint64
	heartbeat   uint64 // when the process was first seen
	urls        []string
	ok          bool
	at          time.Time
}

// probePeers connects to each process of a member once, so that a peer URL that leads elsewhere
// is logged before that member leads. A probe that failed is repeated.
func (n *Node) probePeers(ctx context.Context) {
	known := make(map[uint64]*probed)
	for {
		looked := n.members.Looked()
		members := n.members.Cached()
		maps.DeleteFunc(known, func(id uint64, _ *probed) bool {
			return !slices.ContainsFunc(members, func(m membership.Member) bool { return m.ID == id })
		})
		for _, m := range members {
			p := known[m.ID]
			if p == nil || p.incarnation != m.Incarnation {
				p = &probed{incarnation: m.Incarnation, heartbeat: m.Heartbeat}
				known[m.ID] = p
			}
			switch {
			case m.ID == n.backend.MemberID() || len(m.PeerURLs) == 0:
			case !m.Alive || m.Heartbeat < p.heartbeat+2: // it may have died, or not listen yet
			case slices.Equal(p.urls, m.PeerURLs) && (p.ok || time.Since(p.at) < probeInterval):
			default:
				p.ok = n.probe(ctx, m.ID)
				p.urls, p.at = m.PeerURLs, time.Now()
			}
		}
		select {
		case <-looked:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) probe(ctx context.Context, id uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c, err := n.client(ctx, id)
	return err == nil && c.Probe(ctx) == nil // the client logs what fails
}
