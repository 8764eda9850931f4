package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/cluster/feed"
	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Leader returns the member that leads as far as this node knows, 0 if none. It
// implements replica.Leadership.
func (n *Node) Leader() uint64 {
	holder, _ := n.current()
	switch {
	case holder == n.replica.MemberID():
		return 0 // on its way; the replica itself knows when it leads
	case n.silence() > timing.LeaderSilence:
		return 0
	default:
		return holder
	}
}

// recordSign records a sign of life of the leader, and silence returns the time since then.
func (n *Node) recordSign() { n.heard.Store(int64(time.Since(n.start))) }

func (n *Node) silence() time.Duration { return time.Since(n.start) - time.Duration(n.heard.Load()) }

// Route waits until a leader is known: another member, whose client it returns, or
// this node (self). Its error, once ctx or the node has ended, wraps
// mvcc.ErrNotServing. It returns ErrLeaderUnreachable at once if this node cannot connect
// to the leader, and has not heard of it for so long that it reports none: another
// member may be able to.
func (n *Node) Route(ctx context.Context) (leader *link.Client, self bool, err error) {
	for n.working.Err() == nil {
		holder, changed := n.current()
		if n.replica.Leading() {
			return nil, true, nil
		}
		if holder != 0 && holder != n.replica.MemberID() {
			c, err := n.client(ctx, holder)
			if err == nil && n.silence() > timing.LeaderSilence && c.Unreachable() {
				return nil, false, fmt.Errorf("%w, member %x, at %s", mvcc.ErrLeaderUnreachable, holder, c)
			}
			if err == nil {
				return c, false, nil
			}
			n.unreachable.Warn(n.log, "the leader cannot be reached", "leader", fmt.Sprintf("%x", holder), "error", err)
		}
		t := time.NewTimer(timing.LeaderSilence)
		select {
		case <-changed:
		case <-t.C: // its member row may be there by now
		case <-n.working.Done():
		case <-ctx.Done():
			t.Stop()
			return nil, false, fmt.Errorf("%w: no leader is known: %w", mvcc.ErrNotServing, ctx.Err())
		}
		t.Stop()
	}
	return nil, false, fmt.Errorf("%w: shutting down", mvcc.ErrNotServing)
}

func (n *Node) client(ctx context.Context, id uint64) (*link.Client, error) {
	m, found, err := n.members.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("node: member %x is not in the table", id)
	}
	if len(m.PeerURLs) == 0 {
		return nil, fmt.Errorf("node: member %x has no peer URL", id)
	}
	return n.pool.Member(id, m.PeerURLs)
}

// Position asks the leader where the cluster stands. It implements
// replica.Leadership.
func (n *Node) Position(ctx context.Context) (replica.Update, error) {
	c, self, err := n.Route(ctx)
	if err != nil {
		return replica.Update{}, err
	}
	if self {
		return n.replica.Position(ctx)
	}
	return feed.NewClient(c).Position(ctx)
}

// Figures asks another member what its process measures.
func (n *Node) Figures(ctx context.Context, id uint64) (map[string]float64, error) {
	c, err := n.client(ctx, id)
	if err != nil {
		return nil, err
	}
	return feed.NewClient(c).Figures(ctx)
}

// reportLoss makes another member write down that the database lost data. It fails with the errors of all.
func (n *Node) reportLoss(ctx context.Context, lost coder.DataLoss) error {
	var errs error
	for _, m := range n.members.Cached() {
		if m.ID == n.replica.MemberID() || !m.Alive {
			continue
		}
		c, err := n.client(ctx, m.ID)
		if err == nil {
			err = feed.NewClient(c).RecordLoss(ctx, lost)
		}
		if err == nil {
			return nil
		}
		errs = errors.Join(errs, fmt.Errorf("asking member %s to write it down: %w", m, err))
	}
	return cmp.Or(errs, errNoOtherMember)
}

var errNoOtherMember = errors.New("no other member is alive")

// Connection implements the server's Router.
type Connection struct{ *Node }

// Leader waits for a leader, and returns the connection to it.
func (c Connection) Leader(ctx context.Context) (conn *grpc.ClientConn, self bool, err error) {
	leader, self, err := c.Route(ctx)
	if err != nil || self {
		return nil, self, err
	}
	return leader.Conn(), false, nil
}

// Peer is what the other members may ask of this node; it implements feed.Node.
type Peer struct{ *Node }

// ClusterID is the cluster's.
func (p Peer) ClusterID() uint64 { return p.replica.ClusterID() }

// MemberID is this node's.
func (p Peer) MemberID() uint64 { return p.replica.MemberID() }

// CompactRevision is what this node knows of it.
func (p Peer) CompactRevision() int64 { return p.replica.CompactRevision() }

// AuthVersion is that of the users and roles this node knows of.
func (p Peer) AuthVersion() int64 { return p.replica.Auth.Rows().Version }

// KeepsLock reports whether this node just saw in the database that it has the lock.
func (p Peer) KeepsLock() bool { return p.members.KeepsLock() }

// HeartbeatPeriod returns a context that ends when the next heartbeat of feeds is due.
func (p Peer) HeartbeatPeriod() context.Context { return p.members.HeartbeatPeriod() }

// FeedEnded is called when a feed that had begun has ended.
func (p Peer) FeedEnded() { p.members.FeedEnded() }

// Position confirms that this node leads, and says where the cluster stands.
func (p Peer) Position(ctx context.Context) (replica.Update, error) {
	return p.replica.Position(ctx)
}

// RecordLoss writes down that the database lost data, for another member.
func (p Peer) RecordLoss(ctx context.Context, lost coder.DataLoss) error {
	return p.replica.RecordLoss(ctx, lost)
}

// Stream opens a stream on the leader's hub.
func (p Peer) Stream() (*watch.Stream, error) {
	if !p.replica.Leading() {
		return nil, mvcc.ErrNotLeader
	}
	return p.replica.Hub.NewStream(), nil
}

// LeadershipEnded returns a channel that is closed when the current leadership has ended.
func (p Peer) LeadershipEnded() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leadership
}
