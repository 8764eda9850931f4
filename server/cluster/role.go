package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/server/election"
)

// Errors of MoveLeader.
var (
	// ErrBadTransferee: there is no such member that is alive.
	ErrBadTransferee = errors.New("cluster: no such member to lead")
)

// lead is what the elector calls when this node has the lock. Whether its last
// holder still answers is for the chain row to tell.
func (n *Node) lead(ctx context.Context, _ bool) error {
	n.locked.Store(true)
	defer n.locked.Store(false)
	if end := n.reading.Load(); end != nil {
		(*end)()
	}
	n.role.Lock()
	defer n.role.Unlock()
	ended := make(chan struct{})
	err := n.backend.Lead(ctx, backend.LeadOptions{Leading: func(term int64) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.leadership = ended
		n.metrics.leaderships.Inc()
		n.wakeAll()
	}})
	n.mu.Lock()
	n.wakeAll()
	n.mu.Unlock()
	// Followers are told by the end of their feeds. If the lock is still this
	// node's they would find it taken: then the end waits for observed.
	if err != nil {
		n.endLeadership()
	}
	switch {
	case errors.Is(err, backend.ErrNotServing):
		// It never will again: leave the lock to those that can lead.
		n.resigned()
	case errors.Is(err, backend.ErrNotLeader):
		n.log.Info("follows now", "reason", err)
	}
	return err
}

// observed is told by the elector who has the lock.
func (n *Node) observed(holder string) {
	id, err := memberOf(holder)
	if err != nil {
		n.log.Error("the lock row cannot be read", "error", err)
	}
	n.mu.Lock()
	old := n.holder
	n.holder = id
	if old != id {
		n.hear() // of whoever changed the row
		n.wakeAll()
	}
	n.mu.Unlock()
	if old == id {
		return
	}
	if id != 0 {
		n.metrics.changes.Inc()
	}
	n.log.Info("leader changed", "leader", fmt.Sprintf("%x", id))
	if id != n.backend.MemberID() {
		n.endLeadership()
	}
}

// wakeAll wakes those who wait for a leader. The mutex is held.
func (n *Node) wakeAll() {
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *Node) endLeadership() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.leadership:
	default:
		close(n.leadership)
	}
}

// MoveLeader makes the member lead in place of this node. Errors:
// backend.ErrNotLeader if this node does not lead, ErrBadTransferee, the
// database's.
func (n *Node) MoveLeader(ctx context.Context, member uint64) error {
	if !n.backend.Leading() {
		return backend.ErrNotLeader
	}
	if member == n.backend.MemberID() {
		return nil
	}
	m, found, err := n.members.Find(ctx, member)
	if err != nil {
		return err
	}
	if !found || !m.Alive {
		return ErrBadTransferee
	}
	err = n.elector.Transfer(ctx, identityOf(member))
	if errors.Is(err, election.ErrNotHolder) {
		return backend.ErrNotLeader
	}
	return err
}
