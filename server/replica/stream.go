package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/watch"
)

// errGap means that events are missing between the node's revision and an update.
var errGap = errors.New("replica: revisions are missing")

// Apply makes commits of the leader visible on this node. It must not be called concurrently,
// nor while the node leads. Verify must have been called for the first update of a feed, and
// LoadAuth must have loaded the users and roles of the update before. Errors: ErrNotServing, or
// errGap, after which the caller must call CatchUp.
func (b *Replica) Apply(u Update) error {
	if err := b.Stopped(); err != nil {
		return err
	}
	b.seen.NoteTerm(u.Term)
	known := b.Revision()
	events := u.Events
	for len(events) > 0 && events[0].Record.ModRevision <= known {
		events = events[1:]
	}
	if len(events) > 0 && events[0].Record.ModRevision != known+1 || len(events) == 0 && u.Revision > known {
		return fmt.Errorf("%w: after %d", errGap, known)
	}
	if len(events) > 0 {
		if err := b.show(events, events[len(events)-1].Record.ModRevision); err != nil {
			return err
		}
	}
	b.noteCompacted(u.CompactRevision)
	b.noteFed()
	return nil
}

// show makes events in the table visible, up to rev. It updates the key space view and the
// visible revision, calls then, and publishes to watchers, in that order. The caller must not change
// the events afterwards.
func (b *Replica) show(events []*watch.Event, rev int64, then ...func()) error {
	if b.cfg.Leadership != nil {
		b.shown.add(events)
	}
	b.view.Apply(events)
	if err := b.advance(rev); err != nil {
		return b.stopServing(err)
	}
	for _, f := range then {
		f()
	}
	if rev > b.hub.Revision() {
		b.hub.Publish(events, rev)
	}
	return b.published.Advance(rev)
}

// advance makes everything up to rev readable.
func (b *Replica) advance(rev int64) error {
	b.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Show, Revision: rev})
	defer b.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Shown, Revision: rev})
	return b.tso.Advance(rev)
}

// CatchUp applies log rows up to the newest revision that the node may show, see visibility.
// Like Apply it must not be called concurrently, nor while the node leads. Errors: those of
// Check.
func (b *Replica) CatchUp(ctx context.Context) error {
	began := b.cfg.Trace.Now()
	cur, err := b.Check(ctx)
	if err != nil {
		return err
	}
	b.cfg.Trace.Record(steptrace.Step{Kind: steptrace.Find, Began: began, Revision: cur})
	b.visible.find(cur, time.Now())
	to, token := min(cur, b.visible.newest(time.Now())), b.seen.Token()
	if to <= b.Revision() && token == b.caughtUp {
		_, err = b.readMark(ctx)
	} else if err = b.catchUpTo(ctx, b.history, to); err == nil {
		b.caughtUp = token
		b.shown.term.Store(token.Term)
	}
	if err != nil {
		return err
	}
	b.noteFed()
	return nil
}

// Check reads the state of the cluster in the table: term, newest revision, alarms, users and
// roles. It returns the newest revision, and does not show it. It must not be called while the
// node leads. Errors: ErrNotServing if the database has lost data that this node has seen,
// the database's.
func (b *Replica) Check(ctx context.Context) (revision int64, err error) {
	if err := b.Stopped(); err != nil {
		return 0, err
	}
	cur, rows, err := b.look(ctx, coder.AuthSettingsKey())
	if err != nil {
		return 0, err
	}
	if cur == (coder.FenceToken{}) {
		return b.Revision(), nil // no node has led yet
	}
	settings := rows[0]
	b.seen.Note(cur)
	if err := b.alarms.Load(ctx); err != nil {
		return 0, err
	}
	known, err := b.users.Knows(settings)
	if !known && err == nil {
		_, err = b.users.Load(ctx)
	}
	if err == nil {
		b.checked.Store(&cur)
	}
	return cur.Revision, err
}

// look reads the fence row, the zero value if there is none yet, and the rows of keys. Errors: ErrNotServing if
// the database has lost data that this node has seen, the database's.
func (b *Replica) look(ctx context.Context, keys ...[]byte) (cur coder.FenceToken, rows [][]byte, err error) {
	verify := b.seen.Verifier()
	rows, err = fence.ReadChecked(ctx, b.store, keys...)
	switch {
	case err == nil:
	case errors.Is(err, fence.ErrDataLost):
		return cur, nil, b.stopServing(err)
	default:
		return cur, nil, err
	}
	token := rows[0]
	if token != nil {
		if cur, err = coder.DecodeFenceToken(token); err != nil {
			return cur, nil, b.stopServing(fmt.Errorf("%w: %w", fence.ErrDataLost, err))
		}
	}
	if err := verify(cur); err != nil {
		if token == nil {
			err = fmt.Errorf("%w: the fence row is gone", fence.ErrDataLost)
		}
		return cur, nil, b.stopServing(err)
	}
	return cur, rows[1:], nil
}

// catchUpTo reads the compaction mark, and shows the changes in log up to rev. After each read it
// compares the revisions that the node has shown with log, so that the new ones continue them.
func (b *Replica) catchUpTo(ctx context.Context, log *history.Log, rev int64) error {
	if _, err := b.readMark(ctx); err != nil {
		return err
	}
	if b.Revision() >= rev {
		return b.continues(ctx, log)
	}
	for b.Revision() < rev {
		from := b.Revision() + 1
		events, next, err := log.Changes(ctx, []byte{0}, []byte{0}, from, rev, history.UsualBytes)
		var compacted *watch.CompactedError
		switch {
		case errors.As(err, &compacted):
			if err := b.jump(min(compacted.Revision-1, rev)); err != nil {
				return err
			}
			continue
		case err != nil:
			return fmt.Errorf("reading the log: %w", err)
		}
		if err := b.continues(ctx, log); err != nil {
			return err
		}
		if err := b.show(events, min(next-1, rev)); err != nil {
			return err
		}
	}
	return nil
}

// jump moves to revision rev without the events before it, whose log rows were compacted. It
// discards the key space view, and forgets what it has shown. Watchers read the table, or are
// cancelled as compacted.
func (b *Replica) jump(rev int64) error {
	b.log.Warn("history needed to catch up was compacted, discarding caches", "from", b.Revision(), "to", rev)
	b.view.Purge(rev)
	b.shown.forget()
	if err := b.advance(rev); err != nil {
		return b.stopServing(err)
	}
	b.hub.Jump(rev)
	return b.published.Advance(rev)
}

// noteCompacted makes known to readers and watchers that everything below rev is gone.
func (b *Replica) noteCompacted(rev int64) {
	if b.compacted.Raise(rev) {
		b.hub.Compact(rev)
	}
}

// readMark reads the compaction mark from the table, makes it known, and returns it.
func (b *Replica) readMark(ctx context.Context) (int64, error) {
	rev, err := b.compacted.Read(ctx)
	if err != nil {
		return 0, err
	}
	b.noteCompacted(rev)
	return b.CompactRevision(), nil
}
