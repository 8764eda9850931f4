package backend

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// fenceInterval is how often an idle leader looks whether it still is one.
const fenceInterval = time.Second

// maxAskDelay is the longest pause between two questions for the newest revision:
// a new leader is there within a second.
const maxAskDelay = 100 * time.Millisecond

// Leadership is what a follower knows of who leads.
type Leadership interface {
	// Position asks the leader, once it is known, for the newest revision, which it
	// answers only while it leads. The answer must be asked for after the call.
	// Errors of the connection, and ErrNotLeader, are passing.
	Position(ctx context.Context) (Update, error)
	// Leader returns the member that leads as far as this node knows, 0 if none.
	Leader() uint64
}

// stopServing makes the node refuse everything from now on, because of cause,
// and returns the error requests get. The process stays up, so that its health
// checks and logs can say why.
func (b *Backend) stopServing(cause error) error {
	err := fmt.Errorf("%w: %w", ErrNotServing, cause)
	if b.stopped.CompareAndSwap(nil, &err) {
		b.log.Error("this node stops serving", "error", cause)
	}
	b.tellLost(cause) // also if it stopped for another reason before
	return b.serving()
}

// StopServing makes the node refuse everything from now on, because of cause.
func (b *Backend) StopServing(cause error) { _ = b.stopServing(cause) }

// serving returns nil, or why the node answers nothing at all.
func (b *Backend) serving() error {
	if err := b.stopped.Load(); err != nil {
		return *err
	}
	return nil
}

// Leader returns the member that leads as far as this node knows, 0 if none.
func (b *Backend) Leader() uint64 {
	switch {
	case b.serving() != nil:
		return 0
	case b.Leading():
		return b.MemberID()
	case b.cfg.Leadership != nil:
		return b.cfg.Leadership.Leader()
	default:
		return 0
	}
}

// hasLeader returns nil if the node serves and knows a leader.
func (b *Backend) hasLeader() error {
	if err := b.serving(); err != nil {
		return err
	}
	if b.Leader() == 0 {
		return fmt.Errorf("%w: no leader is known", ErrNotServing)
	}
	return nil
}

// readFrontier returns the revision to read at, if the request is permitted there.
// A linearizable read sees every write, and obeys every change of users and roles,
// acknowledged before the call: the leader makes sure that it is one, a follower asks
// it and waits until it knows as much.
func (b *Backend) readFrontier(ctx context.Context, linearizable bool) (int64, error) {
	frontier, err := b.newestRevision(ctx, linearizable)
	if err == nil {
		err = b.permitted(ctx)
	}
	return frontier, err
}

func (b *Backend) newestRevision(ctx context.Context, linearizable bool) (int64, error) {
	if linearizable {
		if l := b.leading.Load(); l != nil && b.serving() == nil && l.authority.valid() {
			return b.Revision(), nil
		}
		defer b.confirmed(ctx, time.Now())
	}
	retry := &retrier{most: maxAskDelay}
	for {
		if err := b.serving(); err != nil {
			return 0, err
		}
		if !linearizable {
			return b.Revision(), nil
		}
		var err error
		if l := b.leading.Load(); l != nil {
			if err = l.confirm(ctx); err == nil {
				return b.Revision(), nil // not before: confirm may have waited for a commit
			}
		} else if b.cfg.Leadership == nil {
			return 0, ErrNotLeader
		} else if frontier, ferr := b.askFrontier(ctx); ferr == nil {
			return frontier, nil
		} else {
			err = ferr
		}
		if !errors.Is(err, ErrNotLeader) && ctx.Err() == nil {
			b.log.Debug("asking for the newest revision failed", "error", err)
		}
		if retry.wait(ctx) != nil {
			return 0, b.publicError(ctx, err)
		}
	}
}

// slowConfirm is what etcd takes for slow in the same place.
const slowConfirm = 500 * time.Millisecond

// confirmed notes how long it took since started to find out what is newest.
func (b *Backend) confirmed(ctx context.Context, started time.Time) {
	took := time.Since(started)
	if s := StepsOf(ctx); s != nil {
		s.Confirm += took
	}
	if took > slowConfirm {
		b.metrics.slowConfirms.Inc()
	}
}

// askFrontier asks the leader and waits until this node knows as much.
func (b *Backend) askFrontier(ctx context.Context) (int64, error) {
	p, err := b.positions.get(ctx)
	if err != nil {
		return 0, err
	}
	if err := b.awaitShown(ctx, p); err != nil {
		return 0, err
	}
	return b.Revision(), nil
}

// AwaitApplied returns once this node has applied what the leader had at u, whose
// events do not count: the revision, for readers and for watchers, the users and roles,
// and the compaction. Errors: ctx's, the database's.
func (b *Backend) AwaitApplied(ctx context.Context, u Update) error {
	if err := b.awaitShown(ctx, u); err != nil {
		return err
	}
	return b.published.Wait(ctx, u.Revision)
}

// awaitShown is AwaitApplied for readers only.
func (b *Backend) awaitShown(ctx context.Context, u Update) error {
	if u.CompactRevision > 0 {
		b.noteCompacted(u.CompactRevision)
	}
	b.shown.raise(u.Revision)
	if err := b.LoadAuth(ctx, u.AuthVersion); err != nil {
		return err
	}
	return b.tso.Wait(ctx, u.Revision)
}

// Position is the leader's answer to a follower: the newest revision there is.
// Errors: ErrNotLeader, ErrNotServing, the database's.
func (b *Backend) Position(ctx context.Context) (Update, error) {
	l, err := b.lead()
	if err != nil {
		return Update{}, err
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	if err := l.confirm(ctx); err != nil {
		return Update{}, b.publicError(ctx, err)
	}
	return Update{
		Term: b.term.Load(), Revision: b.Revision(), CompactRevision: b.CompactRevision(), AuthVersion: b.AuthRows().Version,
	}, nil
}
