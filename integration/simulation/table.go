package simulation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// judgeTable compares the rows of the table with what watchers saw. Rows may be wrong for a time before a client can
// notice that: when another node leads, when a backup is made, or in a revision that no client happens to read.
func (w *world) judgeTable(account []history.Revision) {
	if err := w.judgeLog(account); err != nil {
		w.fail("the log in the table: %v", err)
	}
	if err := w.judgeIndex(account); err != nil {
		w.fail("the index in the table: %v", err)
	}
	if err := w.judgeVersions(); err != nil {
		w.fail("the versions in the table: %v", err)
	}
	if err := w.judgeBytes(); err != nil {
		w.fail("the count of bytes in the table: %v", err)
	}
}

// judgeBytes checks that the bytes of rows are counted, and off by at most a tenth, as after a removal of unknown
// outcome.
func (w *world) judgeBytes() error {
	lo, hi := coder.CountedBounds()
	m, err := w.database.store.Measure(context.Background(),
		sqlstore.MeasureQuery{Start: lo, End: hi, Also: [2][]byte{coder.FenceKey(), coder.RemovedKey()}})
	if err != nil {
		return err
	}
	token, err := coder.DecodeFenceToken(m.Also[0])
	if err != nil {
		return err
	}
	var removed int64
	if m.Also[1] != nil {
		if removed, err = coder.DecodeInt64(m.Also[1]); err != nil {
			return err
		}
	}
	if counted := token.Bytes - removed; token.Bytes == 0 || counted < m.Bytes*9/10 || counted > m.Bytes*11/10 {
		return fmt.Errorf("%d were counted (%d added, %d removed), rows have %d", counted, token.Bytes, removed, m.Bytes)
	}
	return nil
}

// judgeVersions checks that the newest version of each key has a row, unless it is a tombstone.
func (w *world) judgeVersions() error {
	return w.eachIndexRow(func(key []byte, x coder.Index) error {
		_, err := w.database.store.Get(context.Background(), coder.EncodeVersionKey(key, x.ModRevision))
		switch {
		case x.Tombstone && err == nil:
			return fmt.Errorf("the deletion of %q at revision %d has a version row", key, x.ModRevision)
		case !x.Tombstone && err != nil:
			return fmt.Errorf("%q at revision %d: %w", key, x.ModRevision, err)
		}
		return nil
	})
}

// eachIndexRow calls f with each row of the index, until it fails.
func (w *world) eachIndexRow(f func(key []byte, x coder.Index) error) error {
	lo, hi := coder.IndexBounds([]byte{0}, []byte{0})
	for row, err := range w.database.store.Iter(context.Background(), sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return err
		}
		key, err := coder.DecodeIndexKey(row.Key)
		if err != nil {
			return err
		}
		x, err := coder.DecodeIndex(row.Value)
		if err != nil {
			return err
		}
		if err := f(key, x); err != nil {
			return err
		}
	}
	return nil
}

// judgeLog checks that the log rows that are left have the events of their revisions, in order, and times that do not
// go back.
func (w *world) judgeLog(account []history.Revision) error {
	lo, hi := coder.LogBounds(0, math.MaxInt64)
	changes := make(map[int64][]coder.Change)
	var last time.Time
	for row, err := range w.database.store.Iter(context.Background(), sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return err
		}
		some, err := coder.DecodeLog(row.Value)
		if err != nil {
			return err
		}
		at, err := coder.DecodeLogTime(row.Value)
		if err != nil {
			return err
		}
		if at.Before(last) {
			return fmt.Errorf("a commit of %s follows one of %s", at, last)
		}
		last = at
		for _, c := range some {
			changes[c.Revision] = append(changes[c.Revision], c)
		}
	}
	for _, r := range account {
		logged := changes[r.Number]
		if logged == nil {
			continue // it was compacted
		}
		if len(logged) != len(r.Events) {
			return fmt.Errorf("%d changes of revision %d, which has %v", len(logged), r.Number, r.Events)
		}
		for i, c := range logged {
			e := r.Events[i]
			var replaced int64
			if e.Prev != nil {
				replaced = e.Prev.ModRevision
			}
			if c.Sub != int32(i) || string(c.Key) != e.Key || c.Tombstone != e.Deleted || e.Prev != nil &&
				c.PrevRevision != replaced {
				return fmt.Errorf("revision %d, change %d: %+v rather than %v", r.Number, i, c, e)
			}
		}
	}
	return nil
}

// judgeIndex checks that there is an index row for each key that exists, with its newest revision.
func (w *world) judgeIndex(account []history.Revision) error {
	live := make(map[string]history.KV)
	for _, r := range account {
		for _, e := range r.Events {
			if delete(live, e.Key); !e.Deleted {
				live[e.Key] = e.KV
			}
		}
	}
	err := w.eachIndexRow(func(key []byte, x coder.Index) error {
		if x.Tombstone {
			return nil
		}
		kv, exists := live[string(key)]
		if !exists || x.ModRevision != kv.ModRevision || x.CreateRevision != kv.CreateRevision || x.Version != kv.Version ||
			x.Lease != kv.Lease {
			return fmt.Errorf("%q has %+v rather than %v", key, x, kv)
		}
		delete(live, string(key))
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range sortedKeys(live) {
		return fmt.Errorf("%q has no row, and is %v", key, live[key])
	}
	return nil
}

// judgeMark checks that the table has a compaction that was acknowledged, unless the database loses data. A simulated
// TiDB may not answer.
func (w *world) judgeMark(acknowledged int64) {
	raw, err := w.database.store.Get(context.Background(), coder.CompactKey())
	if w.plan.loses() || err != nil && !errors.Is(err, sqlstore.ErrKeyNotFound) {
		return
	}
	if mark, err := coder.DecodeInt64(raw); err != nil || mark < acknowledged {
		w.fail("a compaction at %d was acknowledged; the mark in the table is %d, %v", acknowledged, mark, err)
	}
}
