package history

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

const (
	// UsualBytes is a bound for Changes where its caller has no reason for another one.
	UsualBytes = 8 << 20

	// maxChanges bounds the changes in a page of the log, if it has more than one commit. A call of Changes looks at one.
	maxChanges = 5000
	// overhead is about the memory of an event, in bytes, in addition to its key and value.
	overhead = 256
	// firstValues and valuesAtATime are how many version rows the first statement of a call reads, and the most
	// that one reads. Before that the sizes of the values are not known.
	firstValues   = 8
	valuesAtATime = 100
	// timeout bounds one call. A database that does not answer must not block the hub's
	// workers. The hub calls again.
	timeout = 30 * time.Second
)

// Log reads the history of a table. It implements watch.Source. Safe for concurrent use.
type Log struct {
	store sqlstore.Store
	mark  func(ctx context.Context) (int64, error)
	cache *pageCache // of the log; nil if each call reads the table
}

// New returns the history of store's table. mark returns a compact revision such that
// nothing at or above it was removed before the call.
func New(store sqlstore.Store, mark func(ctx context.Context) (int64, error)) *Log {
	return &Log{store: store, mark: mark}
}

// Cached returns a Log of the same table that keeps what it has read of the log last. If the database lost commits, it
// may not notice.
func (l *Log) Cached() *Log {
	return &Log{store: l.store, mark: l.mark, cache: &pageCache{reading: make(map[int64]chan struct{})}}
}

// Changes implements watch.Source.
func (l *Log) Changes(ctx context.Context, key, end []byte, from, to int64, atMost int) ([]*watch.Event, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	changes, next, err := l.changes(ctx, key, end, from, to)
	if err != nil {
		return nil, 0, err
	}
	events, next, err := l.values(ctx, changes, next, atMost)
	mark, merr := l.mark(ctx)
	if merr != nil {
		return nil, 0, merr
	}
	if from < mark {
		// Rows may have been removed while they were read.
		return nil, 0, &watch.CompactedError{Revision: mark}
	}
	return events, next, err
}

// changes returns the changes of revisions in [from, to] on keys of the range, and the revision to continue at.
// It looks at one page.
func (l *Log) changes(ctx context.Context, key, end []byte, from, to int64) (matched []coder.Change, next int64,
	err error) {
	match := func(row []coder.Change) {
		for _, c := range row {
			if c.Revision >= from && c.Revision <= to && coder.Contains(key, end, c.Key) {
				c.Key = bytes.Clone(c.Key) // a watcher that lags keeps it, and not the row
				matched = append(matched, c)
			}
		}
	}
	p, err := l.cache.find(ctx, from)
	if err != nil {
		return nil, 0, err
	}
	if p != nil {
		to = min(to, p.next-1)
		for _, row := range p.rows {
			match(row)
		}
		return matched, to + 1, nil
	}
	p = &page{from: from, next: to + 1, bytes: pageOverhead}
	defer func() { l.cache.done(p, err) }()
	lo, hi := coder.LogBounds(from, math.MaxInt64)
	examined, commit := 0, int64(0)
	for stored, err := range l.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return nil, 0, err
		}
		rev, _, err := coder.DecodeLogKey(stored.Key)
		if err != nil {
			return nil, 0, err
		}
		if (examined >= maxChanges || p.bytes >= pageBytes) && rev != commit {
			p.next = min(commit, to) + 1
			break
		}
		commit = rev
		row, err := coder.DecodeLog(stored.Value)
		if err != nil {
			return nil, 0, err
		}
		if len(row) > 0 && row[0].Revision > to {
			break
		}
		match(row)
		p.add(row, len(stored.Value))
		examined += len(row)
	}
	return matched, p.next, nil
}

// EachChange calls f with the changes of revisions in [from, to] on keys of the range, in order, and the time of each,
// until f fails. It reads the log without bound of time. Errors: f's, *watch.CompactedError as Changes, the database's.
func (l *Log) EachChange(ctx context.Context, key, end []byte, from, to int64,
	f func(c coder.Change, at time.Time) error) error {
	lo, hi := coder.LogBounds(from, math.MaxInt64)
	for stored, err := range l.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return err
		}
		changes, err := coder.DecodeLog(stored.Value)
		if err != nil {
			return err
		}
		at, err := coder.DecodeLogTime(stored.Value)
		if err != nil {
			return err
		}
		if len(changes) > 0 && changes[0].Revision > to {
			break
		}
		for _, c := range changes {
			if c.Revision >= from && c.Revision <= to && coder.Contains(key, end, c.Key) {
				if err := f(c, at); err != nil {
					return err
				}
			}
		}
	}
	mark, err := l.mark(ctx)
	if err == nil && from < mark {
		err = &watch.CompactedError{Revision: mark}
	}
	return err
}

// values turns changes into events: as many whole revisions as have about atMost bytes, at least one.
func (l *Log) values(ctx context.Context, changes []coder.Change, next int64,
	atMost int) ([]*watch.Event, int64, error) {
	events := make([]*watch.Event, 0, len(changes))
	pages := watch.NewPages(firstValues, valuesAtATime, atMost)
	for len(changes) > 0 {
		some := changes[:min(len(changes), pages.Next())]
		if pages.Full() {
			some = revisionOf(events[len(events)-1], some)
			if len(some) == 0 {
				return events, changes[0].Revision, nil
			}
		}
		batch, err := l.events(ctx, some)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range batch {
			pages.Add(overhead + len(e.Record.Key) + len(e.Record.Value))
		}
		events = append(events, batch...)
		changes = changes[len(some):]
	}
	return events, next, nil
}

// revisionOf returns the first of changes, as far as they belong to the revision of e.
func revisionOf(e *watch.Event, changes []coder.Change) []coder.Change {
	n := 0
	for n < len(changes) && changes[n].Revision == e.Record.ModRevision {
		n++
	}
	return changes[:n]
}

func (l *Log) events(ctx context.Context, changes []coder.Change) ([]*watch.Event, error) {
	keys := make([][]byte, 0, len(changes))
	revs := make([]int64, 0, len(changes))
	for _, c := range changes {
		if !c.Tombstone { // a tombstone has no version to read
			keys, revs = append(keys, c.Key), append(revs, c.Revision)
		}
	}
	records, err := l.Versions(ctx, keys, revs)
	if err != nil {
		return nil, err
	}
	events := make([]*watch.Event, len(changes))
	for i, c := range changes {
		e := &watch.Event{Type: watch.Put, PrevRevision: c.PrevRevision}
		if c.Tombstone {
			e.Type = watch.Delete
			e.Record = c.Deletion()
		} else {
			e.Record, records = records[0], records[1:]
		}
		if e.Record == nil {
			mark, err := l.mark(ctx)
			if err != nil {
				return nil, err
			}
			if c.Revision < mark {
				return nil, &watch.CompactedError{Revision: mark}
			}
			return nil, fmt.Errorf("history: the version row of %q at revision %d is missing", c.Key, c.Revision)
		}
		events[i] = e
	}
	return events, nil
}

// ChangeOf says what has made a version of a key, which is in JSON for users.
func ChangeOf(version int64, deleted bool) string {
	switch {
	case deleted:
		return "deleted"
	case version == 1:
		return "created"
	}
	return "changed"
}

// Versions implements watch.Source.
func (l *Log) Versions(ctx context.Context, keys [][]byte, revs []int64) ([]*coder.Record, error) {
	return Versions(ctx, l.store, keys, revs)
}

// Versions returns the version that each keys[i] and revs[i] name, nil where store has no row.
func Versions(ctx context.Context, store sqlstore.Store, keys [][]byte, revs []int64) ([]*coder.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	internal := make([][]byte, len(keys))
	for i := range keys {
		internal[i] = coder.EncodeVersionKey(keys[i], revs[i])
	}
	values, err := store.MultiGet(ctx, internal)
	if err != nil {
		return nil, err
	}
	records := make([]*coder.Record, len(keys))
	for i, v := range values {
		if v == nil {
			continue
		}
		if records[i], err = coder.DecodeVersion(keys[i], revs[i], v); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// EachVersion ranges over the versions in the version rows of r.
func EachVersion(ctx context.Context, store sqlstore.Store, r sqlstore.Range) iter.Seq2[*coder.Record, error] {
	return func(yield func(*coder.Record, error) bool) {
		for row, err := range store.Iter(ctx, r) {
			var rec *coder.Record
			if err == nil {
				rec, err = decodeVersion(row)
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

func decodeVersion(row sqlstore.Row) (*coder.Record, error) {
	key, rev, err := coder.DecodeVersionKey(row.Key)
	if err != nil {
		return nil, err
	}
	return coder.DecodeVersion(key, rev, row.Value)
}
