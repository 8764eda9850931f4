package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

// errGap: events are missing between what the node knows and what it was told.
var errGap = errors.New("backend: revisions are missing")

// Update is what a follower is told about commits.
type Update struct {
	Term            int64
	Revision        int64          // the newest one that Events completes
	CompactRevision int64          // -1 or 0 if nothing was compacted
	AuthVersion     int64          // of users and roles, see coder.AuthSettings
	Events          []*watch.Event // whole revisions, in order; those known are passed over
}

// Apply makes commits of the leader visible on this node. One caller at a time, and
// none while the node leads. The users and roles that the update names must be known
// already, see LoadAuth. Errors: errGap, then CatchUp is the way on;
// ErrNotServing.
func (b *Backend) Apply(u Update) error {
	if err := b.serving(); err != nil {
		return err
	}
	b.noteTerm(u.Term)
	known := b.Revision()
	events := u.Events
	for len(events) > 0 && events[0].Record.ModRevision <= known {
		events = events[1:]
	}
	if len(events) > 0 && events[0].Record.ModRevision != known+1 || len(events) == 0 && u.Revision > known {
		return fmt.Errorf("%w: behind %d", errGap, known)
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

// show makes events that are in the table visible, up to rev: caches, frontier,
// then, what the commit did besides, watchers, in that order. The events are the
// caller's own until then.
func (b *Backend) show(events []*watch.Event, rev int64, then ...func()) error {
	for _, e := range events {
		b.pieces.note(e)
		old, kept := b.ranges.set(e.Record)
		if e.PrevRevision > 0 && e.Prev == nil {
			// Before the cache learns of the change it may have what it replaced.
			if old == nil {
				old, _ = b.records.get(e.Record.Key)
			}
			if old != nil && old.ModRevision == e.PrevRevision {
				e.Prev = old
			}
		}
		b.records.set(e.Record, !kept)
	}
	if err := b.tso.Advance(rev); err != nil {
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

// CatchUp brings the node, from the log rows, to the newest revision that it may
// show: see sightings. Like Apply it is not for leaders. Errors: those of Check.
func (b *Backend) CatchUp(ctx context.Context) error {
	cur, err := b.Check(ctx)
	if err != nil {
		return err
	}
	b.shown.add(cur, time.Now())
	if err := b.catchUpTo(ctx, min(cur, b.shown.newest(time.Now()))); err != nil {
		return err
	}
	b.noteFed()
	return nil
}

// Check looks at what the table says of the cluster without touching what readers
// see: the term, the newest revision, which it returns, and the alarms. It is not
// for leaders. Errors: ErrNotServing if the database has lost what this node has
// seen, else the database's.
func (b *Backend) Check(ctx context.Context) (revision int64, err error) {
	if err := b.serving(); err != nil {
		return 0, err
	}
	if err := b.checkLost(ctx); errors.Is(err, errDataLost) {
		return 0, b.stopServing(err)
	} else if err != nil {
		return 0, err
	}
	verify := b.chainVerifier()
	raw, err := b.store.Get(ctx, coder.ChainKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		if err := verify(coder.Chain{}); err != nil {
			return 0, b.stopServing(fmt.Errorf("%w: the chain row is gone", errDataLost))
		}
		return b.Revision(), nil // nobody has led yet
	}
	if err != nil {
		return 0, fmt.Errorf("reading the chain row: %w", err)
	}
	cur, err := coder.DecodeChain(raw)
	if err != nil {
		return 0, b.stopServing(fmt.Errorf("%w: %w", errDataLost, err))
	}
	if err := verify(cur); err != nil {
		return 0, b.stopServing(err)
	}
	b.noteChain(cur)
	if err := b.alarms.load(ctx, b.store); err != nil {
		return 0, err
	}
	_, err = b.auth.load(ctx)
	return cur.Revision, err
}

// chainVerifier returns a judge of what the chain row holds: errDataLost if that is
// older than what this node had seen before the row was read.
func (b *Backend) chainVerifier() func(coder.Chain) error {
	seen := b.newestSeen()
	return func(cur coder.Chain) error {
		if err := judgeChain(seen, cur); errors.Is(err, errDataLost) {
			return err
		}
		return nil
	}
}

// newestSeen returns the most that this node has seen in the chain row, or heard of.
func (b *Backend) newestSeen() coder.Chain {
	seen := *b.seen.Load()
	if rev := b.Revision(); rev > 1 { // the first revision is there before the table has anything
		seen.Revision = max(seen.Revision, rev)
	}
	return seen
}

// catchUpTo shows what the log says happened up to rev, and reads the compaction
// mark.
func (b *Backend) catchUpTo(ctx context.Context, rev int64) error {
	if _, err := b.readMark(ctx); err != nil {
		return err
	}
	for b.Revision() < rev {
		from := b.Revision() + 1
		events, next, err := history{b}.Changes(ctx, []byte{0}, []byte{0}, from, rev)
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
		if err := b.show(events, min(next-1, rev)); err != nil {
			return err
		}
	}
	return nil
}

// jump moves to revision rev without knowing what happened in between: nothing in
// memory can be relied on, and watchers read the table, or learn that they are too
// late.
func (b *Backend) jump(rev int64) error {
	b.log.Warn("this node slept through a compaction", "from", b.Revision(), "to", rev)
	b.pieces.purge(rev)
	b.ranges.purge()
	b.records.purge()
	if err := b.tso.Advance(rev); err != nil {
		return b.stopServing(err)
	}
	b.hub.Jump(rev)
	return b.published.Advance(rev)
}

// noteCompacted tells readers and watchers that everything below rev is gone.
func (b *Backend) noteCompacted(rev int64) {
	for {
		cur := b.compacted.Load()
		if rev <= cur {
			return
		}
		if b.compacted.CompareAndSwap(cur, rev) {
			b.hub.Compact(rev)
			return
		}
	}
}

// noteChain remembers the newest value of the chain row that was seen.
func (b *Backend) noteChain(c coder.Chain) {
	for {
		cur := b.seen.Load()
		if c.Sequence <= cur.Sequence || b.seen.CompareAndSwap(cur, &c) {
			break
		}
	}
	b.noteTerm(c.Term)
}

func (b *Backend) noteTerm(term int64) {
	for {
		cur := b.term.Load()
		if term <= cur || b.term.CompareAndSwap(cur, term) {
			return
		}
	}
}

// readMark reads the compaction mark from the table, and tells readers and watchers.
func (b *Backend) readMark(ctx context.Context) (int64, error) {
	rev, err := loadMark(ctx, b.store)
	if err != nil {
		return 0, err
	}
	b.noteCompacted(rev)
	return b.CompactRevision(), nil
}

// loadMark returns what the compaction mark in the table says, -1 if there is none.
func loadMark(ctx context.Context, store sqlstore.Store) (int64, error) {
	raw, err := store.Get(ctx, coder.CompactKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return -1, nil
	}
	var rev int64
	if err == nil {
		rev, err = coder.DecodeInt64(raw)
	}
	if err != nil {
		return 0, fmt.Errorf("reading the compaction mark: %w", err)
	}
	return rev, nil
}

// mark returns a compact revision such that nothing at or above it was removed
// before the call: what a read that is done must compare its revision with. The
// leader knows it; others ask the table, many readers at once.
func (b *Backend) mark(ctx context.Context) (int64, error) {
	if l := b.leading.Load(); l != nil && l.authority.valid() {
		return b.compacted.Load(), nil
	}
	return b.marks.get(ctx)
}
