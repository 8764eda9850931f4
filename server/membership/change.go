package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Add registers a member that has not started, and returns it and all members.
// It fails with ErrBadURLs, ErrLearners or ErrPeerURLExists.
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
		// Whatever its heartbeat wrote meanwhile: the row's name keeps its id
		// as long as nobody else changes the membership.
		batch.Del(old.key())
		return nil
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

// errDone says that a change is not needed, or has taken effect already.
var errDone = errors.New("membership: nothing to change")

// change carries out what decide adds to a batch, on a table that nobody else
// changed in between: it asks again until it commits, or fails. tried says that
// an earlier batch may have taken effect. A change that was made, or may have
// been, fails with sqlstore.ErrUncertain if it cannot find out; one asked of a Registry
// that has ended fails with what ended it.
func (r *Registry) change(ctx context.Context, decide func(t table, batch sqlstore.BatchWrite, tried bool) error) ([]Member, error) {
	tried := false
	for {
		t, members, batch, err := r.beginChange(ctx)
		if err != nil && tried {
			err = fmt.Errorf("%w: %w", sqlstore.ErrUncertain, err)
		}
		if err != nil {
			return nil, err
		}
		switch err := decide(t, batch, tried); {
		case errors.Is(err, errDone):
			return slices.Clone(members), nil
		case err != nil:
			return nil, err
		}
		err = batch.Commit(ctx)
		switch {
		case err == nil:
			if members, err = r.Members(ctx); err != nil {
				return nil, fmt.Errorf("%w: the change was made, but reading the members failed: %w", sqlstore.ErrUncertain, err)
			}
			return members, nil
		case errors.Is(err, sqlstore.ErrUncertain):
			tried = true
		case !raced(err):
			return nil, err
		}
	}
}

// beginChange looks at the table and returns a batch that commits only if the
// membership is still what was found.
func (r *Registry) beginChange(ctx context.Context) (table, []Member, sqlstore.BatchWrite, error) {
	counter, err := readChanges(ctx, r.store)
	if err != nil {
		return nil, nil, nil, err
	}
	t, members, err := r.look(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := r.Err(); err != nil {
		return nil, nil, nil, err
	}
	batch := r.store.BeginBatchWrite()
	return t, members, batch, counter.swap(batch)
}
