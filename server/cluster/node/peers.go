package node

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// PeerCredentials returns the credentials of the gRPC server at the peer URLs.
func (n *Node) PeerCredentials() credentials.TransportCredentials { return n.security.Accept() }

// revokePeers closes connections to and from processes that are no longer members',
// after each list of the members.
func (n *Node) revokePeers(ctx context.Context) {
	for {
		listed := n.members.Listed()
		n.security.Revoke()
		n.pool.Revoke()
		select {
		case <-listed:
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
		listed := n.members.Listed()
		members := n.members.Cached()
		maps.DeleteFunc(known, func(id uint64, _ *probed) bool {
			return !slices.ContainsFunc(members, func(m member.Member) bool { return m.ID == id })
		})
		for _, m := range members {
			p := known[m.ID]
			if p == nil || p.incarnation != m.Incarnation {
				p = &probed{incarnation: m.Incarnation, heartbeat: m.Heartbeat}
				known[m.ID] = p
			}
			switch {
			case m.ID == n.replica.MemberID() || len(m.PeerURLs) == 0:
			case !m.Alive || m.Heartbeat < p.heartbeat+2: // it may have died, or not listen yet
			case slices.Equal(p.urls, m.PeerURLs) && (p.ok || time.Since(p.at) < timing.Probe):
			default:
				p.ok = n.probe(ctx, m.ID)
				p.urls, p.at = m.PeerURLs, time.Now()
			}
		}
		select {
		case <-listed:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) probe(ctx context.Context, id uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, timing.ProbeTimeout)
	defer cancel()
	c, err := n.client(ctx, id)
	return err == nil && c.Probe(ctx) == nil // the client logs what fails
}
