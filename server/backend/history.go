package backend

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

// history is the watch hub's view of the past: log rows say what changed, version
// rows hold the values. What happened at the compact revision is still there.
type history struct{ b *Backend }

const (
	// historyChanges and historyBytes bound what one call of Changes reads.
	historyChanges = 5000
	historyBytes   = 8 << 20
	// historyValues is how many values are read by one statement.
	historyValues = 100
	// historyTimeout bounds one call: a database that hangs must not hold the
	// hub's workers for ever. The hub calls again.
	historyTimeout = 30 * time.Second
)

// Changes implements watch.Source.
func (h history) Changes(ctx context.Context, key, end []byte, from, to int64) ([]*watch.Event, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	changes, next, err := h.log(ctx, key, end, from, to)
	if err != nil {
		return nil, 0, err
	}
	events, next, err := h.values(ctx, changes, next)
	mark, merr := h.b.mark(ctx)
	if merr != nil {
		return nil, 0, merr
	}
	if from < mark {
		// Rows may have been missing while they were read.
		return nil, 0, &watch.CompactedError{Revision: mark}
	}
	return events, next, err
}

// log reads the changes of whole revisions in [from, to] on keys of the range,
// and where to go on.
func (h history) log(ctx context.Context, key, end []byte, from, to int64) (matched []coder.Change, next int64, err error) {
	lo, hi := coder.LogBounds(from, math.MaxInt64)
	it := h.b.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi})
	defer func() { _ = it.Close() }()
	examined, commit := 0, int64(0)
	for it.Next() {
		rev, _, err := coder.DecodeLogKey(it.Key())
		if err != nil {
			return nil, 0, err
		}
		if examined >= historyChanges && rev != commit {
			return matched, commit + 1, nil
		}
		commit = rev
		row, err := coder.DecodeLog(it.Value())
		if err != nil {
			return nil, 0, err
		}
		for _, c := range row {
			if c.Revision > to {
				return matched, to + 1, nil
			}
			if c.Revision >= from && coder.Contains(key, end, c.Key) {
				matched = append(matched, c)
			}
		}
		examined += len(row)
	}
	return matched, to + 1, it.Err()
}

// values turns changes into events, as many whole revisions as fit the budget,
// at least one.
func (h history) values(ctx context.Context, changes []coder.Change, next int64) ([]*watch.Event, int64, error) {
	events := make([]*watch.Event, 0, len(changes))
	bytes := 0
	for len(changes) > 0 {
		if bytes > historyBytes && changes[0].Revision != events[len(events)-1].Record.ModRevision {
			return events, changes[0].Revision, nil
		}
		n := revisionBoundary(changes, historyValues)
		batch, err := h.events(ctx, changes[:n])
		if err != nil {
			return nil, 0, err
		}
		for _, e := range batch {
			bytes += len(e.Record.Key) + len(e.Record.Value)
		}
		events = append(events, batch...)
		changes = changes[n:]
	}
	return events, next, nil
}

// revisionBoundary returns how many of changes to take, about want, so that the
// last revision taken is whole.
func revisionBoundary(changes []coder.Change, want int) int {
	if len(changes) <= want {
		return len(changes)
	}
	n := want
	for n < len(changes) && changes[n].Revision == changes[n-1].Revision {
		n++
	}
	return n
}

func (h history) events(ctx context.Context, changes []coder.Change) ([]*watch.Event, error) {
	keys := make([][]byte, 0, len(changes))
	revs := make([]int64, 0, len(changes))
	for _, c := range changes {
		if !c.Tombstone { // the change says all of a tombstone
			keys, revs = append(keys, c.Key), append(revs, c.Revision)
		}
	}
	records, err := h.Versions(ctx, keys, revs)
	if err != nil {
		return nil, err
	}
	events := make([]*watch.Event, len(changes))
	for i, c := range changes {
		e := &watch.Event{Type: watch.Put, PrevRevision: c.PrevRevision}
		if c.Tombstone {
			e.Type = watch.Delete
			e.Record = &coder.Record{Key: c.Key, ModRevision: c.Revision, Sub: c.Sub, Tombstone: true}
		} else {
			e.Record, records = records[0], records[1:]
		}
		if e.Record == nil {
			mark, err := h.b.mark(ctx)
			if err != nil {
				return nil, err
			}
			if c.Revision < mark {
				return nil, &watch.CompactedError{Revision: mark}
			}
			return nil, fmt.Errorf("backend: the version row of %q at revision %d is missing", c.Key, c.Revision)
		}
		events[i] = e
	}
	return events, nil
}

// Versions implements watch.Source.
func (h history) Versions(ctx context.Context, keys [][]byte, revs []int64) ([]*coder.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	internal := make([][]byte, len(keys))
	for i := range keys {
		internal[i] = coder.EncodeVersionKey(keys[i], revs[i])
	}
	values, err := h.b.store.MultiGet(ctx, internal)
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
