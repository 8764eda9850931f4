package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// Errors of MoveLeader.
var (
	// ErrBadTransferee: there is no such member that is alive.
	ErrBadTransferee = errors.New("node: no such member to lead")
)

// becomeLeader is called when this node has the lock, and leads until ctx ends. The fence row decides whether the
// previous holder may still answer.
func (n *Node) becomeLeader(ctx context.Context) error {
	n.locked.Store(true)
	defer n.locked.Store(false)
	if end := n.reading.Load(); end != nil {
		// Not at once: what is cut off costs a connection, and this node needs its connections now.
		defer time.AfterFunc(timing.ReadLog, *end).Stop()
	}
	if err := n.role.Acquire(ctx, 1); err != nil {
		return err
	}
	defer n.role.Release(1)
	ended := make(chan struct{})
	err := n.replica.Lead(ctx, func(term int64) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.leadership = ended
		n.wakeAll()
	})
	n.mu.Lock()
	n.wakeAll()
	n.mu.Unlock()
	// The end of their feeds notifies the followers. While this node still holds the lock
	// they would find it taken: then observed ends the feeds.
	if err != nil {
		n.stepDown()
	}
	switch {
	case errors.Is(err, mvcc.ErrNotServing):
		// It never will again: leave the lock to those that can lead.
		n.members.StopCampaign()
	case errors.Is(err, mvcc.ErrNotLeader):
		n.log.Info("follows now", "reason", err)
	}
	return err
}

// observed is called when another member has the lock, 0 if none has.
func (n *Node) observed(id uint64) {
	n.recordSign() // a process that runs changed the row
	n.replica.Divergence.Suspect()
	n.mu.Lock()
	n.wakeAll()
	n.mu.Unlock()
	if id != 0 {
		n.metrics.changes.Inc()
	}
	n.log.Info("leader changed", "leader", fmt.Sprintf("%x", id))
	if id != n.replica.MemberID() {
		n.stepDown()
	}
}

// wakeAll wakes those who wait for a leader. The mutex is held.
func (n *Node) wakeAll() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// stepDown ends the feeds of this node's leadership.
func (n *Node) stepDown() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.leadership:
	default:
		close(n.leadership)
	}
}

// MoveLeader makes the member lead in place of this node. Errors:
// mvcc.ErrNotLeader if this node does not lead, ErrBadTransferee, the
// database's.
func (n *Node) MoveLeader(ctx context.Context, id uint64) error {
	if !n.replica.Leading() {
		return mvcc.ErrNotLeader
	}
	if id == n.replica.MemberID() {
		return nil
	}
	m, found, err := n.members.Find(ctx, id)
	if err != nil {
		return err
	}
	if !found || !m.Alive {
		return ErrBadTransferee
	}
	err = n.members.Transfer(ctx, m)
	if errors.Is(err, member.ErrNotHolder) {
		return mvcc.ErrNotLeader
	}
	return err
}
