package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/server/cluster/feed"
	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"github.com/sqlbrain/sqlbrain/watch"
)

// follow keeps the node up to date while it does not lead: from the leader's feed,
// or where there is none, from the log rows.
func (n *Node) follow(ctx context.Context) {
	for ctx.Err() == nil {
		holder, changed := n.current()
		if holder != 0 && holder != n.replica.MemberID() && !n.replica.Leading() && n.followMember(ctx, holder, changed) {
			continue // whether its process is gone shows with the next connection
		}
		if err := n.readLog(ctx); err != nil && ctx.Err() == nil {
			n.log.Debug("cannot read the log", "error", err)
		}
		if n.replica.Leading() {
			await(ctx, changed)
		} else {
			pause(ctx, timing.ReadLog, changed)
		}
	}
}

// await waits for changed to be closed, or for ctx to end.
func await(ctx context.Context, changed <-chan struct{}) {
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// pause waits for d, for changed to be closed, or for ctx to end.
func pause(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
	}
}

// followMember follows the member's feed until it ends, or another member leads. It
// reports whether the feed had worked, for longer than the pause between two
// attempts, and broke.
func (n *Node) followMember(ctx context.Context, member uint64, changed <-chan struct{}) (broke bool) {
	ctx, cancel := context.WithCancel(ctx)
	watching := make(chan struct{})
	defer func() { cancel(); <-watching }()
	go func() {
		defer close(watching)
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	began := time.Now()
	fed, err := n.followFeed(ctx, member)
	var compacted *watch.CompactedError
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, link.ErrRefused):
		n.members.Refused(member)
	case errors.Is(err, feed.ErrNotLeader):
		n.members.PollNow()
	case errors.As(err, &compacted), errors.Is(err, feed.ErrAhead):
		// Reading the log reports the error, or catches up.
	default:
		n.log.Debug("the leader's feed ended", "leader", fmt.Sprintf("%x", member), "error", err)
		return fed && ctx.Err() == nil && time.Since(began) > timing.ReadLog
	}
	return false
}

// followFeed reports whether the feed brought anything before it ended with err.
func (n *Node) followFeed(ctx context.Context, member uint64) (fed bool, err error) {
	c, err := n.client(ctx, member)
	if err != nil {
		return false, err
	}
	f, err := feed.NewClient(c).Follow(ctx, n.replica.Revision()+1)
	if err != nil {
		return false, err
	}
	defer f.Close()
	defer func() {
		n.replica.Divergence.Suspect()
		n.members.PollNow()
	}()
	for {
		u, err := f.Next()
		if err != nil {
			return fed, err
		}
		if !fed {
			if err := n.replica.Divergence.Check(ctx, u.Term, true); err != nil {
				return false, err
			}
		}
		fed = true
		n.recordSign()
		if u.KeepsLock {
			n.members.RecordHeartbeat(member)
		}
		if err := n.replica.Auth.LoadVersion(ctx, u.AuthVersion); err != nil {
			return fed, err
		}
		if err := n.apply(ctx, u); err != nil {
			return fed, err
		}
	}
}

// apply takes an update in, unless this node leads by now.
func (n *Node) apply(ctx context.Context, u replica.Update) error {
	if err := n.role.Acquire(ctx, 1); err != nil {
		return err
	}
	defer n.role.Release(1)
	return n.replica.Apply(u)
}

// readLog catches up with the table, unless this node leads.
func (n *Node) readLog(ctx context.Context) error {
	if !n.role.TryAcquire(1) {
		return nil // it leads, or is about to
	}
	defer n.role.Release(1)
	ctx, cancel := context.WithTimeout(ctx, timing.TablePollTimeout)
	defer cancel()
	n.reading.Store(&cancel)
	if n.locked.Load() {
		return nil // the leadership waits for the role
	}
	before := n.replica.Status().Term
	err := n.replica.CatchUp(ctx)
	if n.replica.Status().Term != before {
		n.members.PollNow() // another member leads: the lock row names it
	}
	return err
}

// cutOff ends, shortly after another member took the lock, the calls that still wait
// for an answer of the leader before: it may be frozen, or cut off itself.
func (n *Node) cutOff(ctx context.Context) {
	last, changed := n.current()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		holder, next := n.current()
		if last != 0 && holder != last && last != n.replica.MemberID() {
			_ = retry.Sleep(ctx, timing.CutOff)
			if now, _ := n.current(); now != last {
				n.pool.Drop(last)
			}
		}
		last, changed = holder, next
	}
}

// piggybackRead returns what a poll of the members is to read for this node. A follower need not poll the table
// for a while if that shows that nothing has changed.
func (n *Node) piggybackRead() (keys [][]byte, found func(rows [][]byte)) {
	return n.replica.PiggybackRead(func() {
		if n.silence() <= timing.TablePoll {
			n.tablePolls.Reset(timing.TablePoll)
		}
	})
}

// pollTable reads the state that the feed does not carry, and keeps the follower up to date
// while the feed is silent.
func (n *Node) pollTable(ctx context.Context) {
	out := false
	defer n.tablePolls.Stop()
	for {
		select {
		case <-n.tablePolls.C:
		case <-ctx.Done():
			return
		}
		n.tablePolls.Reset(timing.TablePoll)
		if _, changed := n.current(); n.replica.Leading() {
			await(ctx, changed) // the end of the leadership closes it
			continue
		}
		var err error
		if n.silence() > timing.TablePoll {
			err = n.readLog(ctx)
		} else {
			bounded, cancel := context.WithTimeout(ctx, timing.TablePollTimeout)
			_, err = n.replica.RefreshState(bounded)
			cancel()
		}
		if errors.Is(err, mvcc.ErrNotServing) {
			err = nil // it has said so
		}
		if err != nil && !out && ctx.Err() == nil {
			n.log.Warn("cannot poll the table, trying again", "error", err)
		}
		if err == nil && out {
			n.log.Info("polling the table again")
		}
		out = err != nil
	}
}
