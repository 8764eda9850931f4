package member

import (
	"context"
	"errors"
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
	added := entry{row: row{ID: newID(), PeerURLs: peerURLs}}
	members, err := r.change(ctx, func(t table, batch sqlstore.BatchWrite, _ bool) error {
		if _, ok := t.withID(added.ID); ok {
			return errDone
		}
		if _, ok := t.sharing(peerURLs, added.ID); ok {
			return ErrPeerURLExists
		}
		if t.waiting() >= mostWaiting {
			return ErrNotEnoughStarted
		}
		batch.PutIfNotExist(added.key(), added.encode())
		return nil
	})
	if err != nil {
		return Member{}, nil, err
	}
	return Member{ID: added.ID, PeerURLs: peerURLs}, members, nil
}

// Remove takes a member out of the cluster, and returns those left. It fails with
// ErrNotFound, or ErrNotEnoughStarted if no other is known to be alive.
func (r *Registry) Remove(ctx context.Context, id uint64) ([]Member, error) {
	return r.change(ctx, func(t table, batch sqlstore.BatchWrite, tried bool) error {
		old, ok := t.withID(id)
		switch {
		case !ok && tried:
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
	for attempt := 1; ; attempt++ {
		batch := r.store.BeginBatchWrite()
		t, err := r.beginChange(ctx, batch)
		if err != nil {
			return err
		}
		own, _ := t.named(r.cfg.Name)
		batch.Del(own.key())
		err = batch.Commit(ctx)
		if err == nil {
			return nil
		}
		if err := again(ctx, err, attempt); err != nil {
			return err
		}
	}
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
		next := entry{name: old.name, row: old.row}
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

// errDone: a change is not needed, or has taken effect already.
var errDone = errors.New("member: nothing to change")

// change commits what decide adds to a batch. decide is called again until the batch commits or
// decide fails, each time with the table that the batch depends on. tried reports that an
// earlier batch may have taken effect. If change cannot find out whether one did, its error
// wraps sqlstore.ErrUncertain. On a Registry that has ended it returns what ended it.
func (r *Registry) change(ctx context.Context,
	decide func(t table, batch sqlstore.BatchWrite, tried bool) error) ([]Member, error) {
	tried := false
	for attempt := 1; ; attempt++ {
		batch := r.store.BeginBatchWrite()
		t, err := r.beginChange(ctx, batch)
		if err != nil && tried {
			err = fmt.Errorf("%w: %w", sqlstore.ErrUncertain, err)
		}
		if err != nil {
			return nil, err
		}
		switch err := decide(t, batch, tried); {
		case errors.Is(err, errDone):
			return r.Cached(), nil
		case err != nil:
			return nil, err
		}
		err = batch.Commit(ctx)
		if err == nil {
			members, err := r.Members(ctx)
			if err != nil {
				return nil, fmt.Errorf("%w: the change was made, but reading the members failed: %w", sqlstore.ErrUncertain, err)
			}
			return members, nil
		}
		if errors.Is(err, sqlstore.ErrUncertain) {
			tried = true
		}
		if err := again(ctx, err, attempt); err != nil {
			return nil, err
		}
	}
}

// beginChange lists the members, and makes batch conflict with other changes of the
// membership since then.
func (r *Registry) beginChange(ctx context.Context, batch sqlstore.BatchWrite) (table, error) {
	counter, err := readChanges(ctx, r.store)
	if err != nil {
		return nil, err
	}
	t, err := r.list(ctx)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return nil, err
	}
	return t, counter.swap(batch)
}
