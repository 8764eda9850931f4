package member

import (
	"context"
	"fmt"
	"slices"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// mostWaiting bounds the members that were added and have not started. They do not keep the others from writing, so
// there may be more than in etcd, but all members read their rows all the time.
const mostWaiting = 32

// Add registers a member that has not started, and returns it and all members.
// It fails with ErrBadURLs, ErrLearners, ErrPeerURLExists, or ErrNotEnoughStarted if
// mostWaiting members have not started.
func (r *Registry) Add(ctx context.Context, peerURLs []string, learner bool) (Member, []Member, error) {
	peerURLs, err := normalURLs(peerURLs)
	if err != nil {
		return Member{}, nil, err
	}
	if learner {
		return Member{}, nil, ErrLearners
	}
	added := Member{ID: newID(), PeerURLs: peerURLs}
	members, err := r.change(ctx, func(t table, batch sqlstore.BatchWrite, _ bool) error {
		waiting := 0
		for _, e := range t.rows {
			if !e.Started() {
				waiting++
			}
		}
		_, done := t.withID(added.ID)
		_, exists := t.sharing(peerURLs, added.ID)
		switch {
		case done:
			return errDone
		case exists:
			return ErrPeerURLExists
		case waiting >= mostWaiting:
			return ErrNotEnoughStarted
		}
		batch.PutIfNotExist(added.key(), added.encode())
		return nil
	})
	if err != nil {
		return Member{}, nil, err
	}
	return added, members, nil
}

// Remove takes a member out of the cluster, and returns those left. It fails with
// ErrNotFound, or ErrNotEnoughStarted if no other is known to be alive.
func (r *Registry) Remove(ctx context.Context, id uint64) ([]Member, error) {
	return r.change(ctx, func(t table, batch sqlstore.BatchWrite, maybe bool) error {
		old, ok := t.withID(id)
		switch {
		case !ok && maybe:
			return errDone
		case !ok:
			return ErrNotFound
		}
		if m, _ := withID(r.view.last(), id); m.Alive && !r.view.provenAlive(id) {
			return ErrNotEnoughStarted
		}
		// Also if a heartbeat has changed the row since: its name keeps its id
		// unless another process changes the membership, which conflicts.
		batch.Del(old.key())
		return nil
	})
}

// removeSelf takes this member out of the cluster. Its error is what ended the Registry if it has ended.
func (r *Registry) removeSelf(ctx context.Context) error {
	return commit(ctx, r.store, func(batch sqlstore.BatchWrite, _ bool) error {
		t, err := r.listCurrent(ctx)
		if err != nil {
			return err
		}
		own, _ := t.named(r.cfg.Name)
		batch.Del(own.key())
		return t.count(batch)
	})
}

// Update sets a member's peer URLs, and returns all members. It fails with
// ErrNotFound, ErrBadURLs or ErrPeerURLExists.
func (r *Registry) Update(ctx context.Context, id uint64, peerURLs []string) ([]Member, error) {
	return r.change(ctx, func(t table, batch sqlstore.BatchWrite, _ bool) error {
		old, ok := t.withID(id)
		if !ok {
			return ErrNotFound
		}
		peerURLs, err := normalURLs(peerURLs)
		if err != nil {
			return err
		}
		if _, ok := t.sharing(peerURLs, id); ok {
			return ErrPeerURLExists
		}
		if slices.Equal(old.PeerURLs, peerURLs) {
			return errDone
		}
		next := old.Member
		next.PeerURLs = peerURLs
		batch.CAS(next.key(), next.encode(), old.raw)
		return nil
	})
}

// Promote fails with ErrNotFound, or ErrNotLearner if there is such a member.
func (r *Registry) Promote(ctx context.Context, id uint64) ([]Member, error) {
	return r.change(ctx, func(t table, _ sqlstore.BatchWrite, _ bool) error {
		if _, ok := t.withID(id); !ok {
			return ErrNotFound
		}
		return ErrNotLearner
	})
}

// change commits what decide adds to a batch, and returns the members. decide is called again until the batch commits
// or decide fails, each time with the table that the batch depends on. maybe reports that an
// earlier batch may have taken effect. If change cannot find out whether one did, its error
// wraps sqlstore.ErrUncertain. On a Registry that has ended it returns what ended it.
func (r *Registry) change(ctx context.Context,
	decide func(t table, batch sqlstore.BatchWrite, maybe bool) error) ([]Member, error) {
	if err := commit(ctx, r.store, func(batch sqlstore.BatchWrite, maybe bool) error {
		t, err := r.listCurrent(ctx)
		switch {
		case err != nil && maybe:
			return fmt.Errorf("%w: %w", sqlstore.ErrUncertain, err)
		case err != nil:
			return err
		}
		if err := decide(t, batch, maybe); err != nil {
			return err
		}
		return t.count(batch)
	}); err != nil {
		return nil, err
	}
	members, err := r.Members(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: the change was made, but reading the members failed: %w", sqlstore.ErrUncertain, err)
	}
	return members, nil
}
