package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

// errStale: a row was not as the sequencer's caches have it, though the chain
// row was. Nothing was written.
var errStale = errors.New("backend: the table does not match the cached index")

// commit makes s durable in one atomic step, then visible, then known to
// watchers; the caller answers the requests behind that. waiting are the
// requests whose changes are in s. On an error nothing was written, nor will be,
// unless the error is the context's.
func (l *leader) commit(ctx context.Context, s *batchState, waiting []*request) error {
	if s.empty() {
		// What was found is as good as a read.
		return l.publicError(ctx, l.confirm(ctx))
	}
	rows := s.rows()
	retry := &retrier{}
	for {
		want := l.chain.next(s.alloc.Last())
		started := time.Now()
		committed, err := l.attempt(ctx, rows, want, len(s.presumed) > 0)
		l.metrics.commit.Observe(time.Since(started).Seconds())
		switch {
		case committed:
			l.metrics.batchChanges.Observe(float64(len(s.changes)))
			return l.finish(s)
		case err == nil:
			// The outcome was unknown, and settled: it did not happen. Again.
		case errors.Is(err, sqlstore.ErrUnavailable):
			l.log.Warn("the database refused a commit, trying again", "error", err)
		default:
			return l.publicError(ctx, err)
		}
		l.metrics.commitRetries.Inc()
		if allAbandoned(waiting) {
			return ErrTimeout
		}
		if err := retry.wait(ctx); err != nil {
			return l.turnedAway()
		}
	}
}

// attempt runs the commit once. Neither committed nor an error means that it did
// not happen and may be tried again. presumed says that keys were presumed absent,
// which is then the likely reason of a conflict.
func (l *leader) attempt(ctx context.Context, rows *rowSet, want coder.Chain, presumed bool) (committed bool, err error) {
	batch := l.store.BeginBatchWrite()
	if off("chain") {
		batch.Put(coder.ChainKey(), coder.EncodeChain(want))
	} else {
		batch.CAS(coder.ChainKey(), coder.EncodeChain(want), coder.EncodeChain(l.chain.held))
	}
	rows.addTo(batch)
	started := l.authority.now()
	cctx, cancel := context.WithTimeout(ctx, l.cfg.CommitTimeout)
	err = batch.Commit(cctx)
	cancel()
	var conflict *sqlstore.Conflict
	switch {
	case err == nil:
		l.chain.held = want
		l.noteChain(want)
		l.authority.extend(started)
		return true, nil
	case errors.Is(err, sqlstore.ErrRowMissing):
		// The commit took effect, so the error must not say that nothing was written:
		// the request would be executed again elsewhere.
		missing := rowMissing(err)
		_ = l.end(missing)
		return false, fmt.Errorf("%w: %w", ErrLeaderLost, missing)
	case errors.As(err, &conflict) && presumed:
		// Nothing was written, and there is nothing to settle. If it was the chain
		// row that conflicted, the next attempt, which presumes nothing, finds out.
		return false, fmt.Errorf("%w: %w", errPresumed, conflict)
	case errors.As(err, &conflict), errors.Is(err, sqlstore.ErrUncertain):
	default:
		return false, err
	}
	l.log.Warn("the outcome of a commit has to be settled", "error", err, "revision", want.Revision)
	l.metrics.settled.Inc()
	committed, serr := l.chain.settle(ctx, want)
	switch {
	case errors.Is(serr, errDeposed), errors.Is(serr, errDataLost):
		if err := l.end(serr); conflict != nil {
			return false, err // it certainly did not happen
		}
		return false, fmt.Errorf("%w: %w", ErrLeaderLost, serr)
	case serr != nil:
		return false, ErrLeaderLost // ctx ended: somebody else has to settle it
	case committed:
		l.noteChain(want)
		return true, nil
	case conflict != nil:
		return false, fmt.Errorf("%w: %w", errStale, conflict)
	default:
		l.noteChain(l.chain.held) // raised, so that the commit never happens
		return false, nil
	}
}

// finish makes a durable batch visible: caches, users and roles, frontier, what else
// was staged, events, in that order.
func (l *leader) finish(s *batchState) error {
	events := make([]*watch.Event, len(s.changes))
	for i, c := range s.changes {
		events[i] = event(c)
	}
	if len(s.keys) > aloneKeys {
		l.index.update(s.keys) // so many must not push out the keys in use
	} else {
		for k, ks := range s.keys {
			l.index.set(k, ks.entry())
		}
	}
	l.size.grow(int64(s.bytes))
	l.auth.raise(s.auth) // before what was written under it can be read
	err := l.show(events, s.alloc.Last(), s.after...)
	l.aheads.note(s)
	l.verdicts.note(s)
	return err
}

// event returns the watch event of c.
func event(c change) *watch.Event {
	e := &watch.Event{Type: watch.Put, Record: c.rec}
	if c.rec.Tombstone {
		e.Type = watch.Delete
	}
	if c.prev != nil {
		e.PrevRevision = c.prev.ModRevision
		if c.prevFull {
			e.Prev = c.prev
		}
	}
	return e
}

func allAbandoned(requests []*request) bool {
	for _, r := range requests {
		if !r.abandoned.Load() {
			return false
		}
	}
	return true
}

// rowSet is a commit in terms of rows, the chain row excepted.
type rowSet struct {
	created  []sqlstore.Row // must not exist
	swaps    []swap
	replaced []sqlstore.Row
	removed  [][]byte
}

type swap struct {
	key, newVal, oldVal []byte
	missingOK           bool
}

func (rs *rowSet) addTo(batch sqlstore.BatchWrite) {
	for _, w := range rs.swaps {
		if w.missingOK {
			batch.CASOrPut(w.key, w.newVal, w.oldVal)
		} else {
			batch.CAS(w.key, w.newVal, w.oldVal)
		}
	}
	for _, r := range rs.created {
		batch.PutIfNotExist(r.Key, r.Value)
	}
	for _, r := range rs.replaced {
		batch.Put(r.Key, r.Value)
	}
	for _, k := range rs.removed {
		batch.Del(k)
	}
}

// rows returns the rows that s writes.
func (s *batchState) rows() *rowSet {
	rs := &rowSet{}
	log := make([]coder.Change, len(s.changes))
	for i, c := range s.changes {
		log[i] = coder.Change{Revision: c.rec.ModRevision, Sub: c.rec.Sub, Key: c.rec.Key, Tombstone: c.rec.Tombstone}
		if c.prev != nil {
			log[i].PrevRevision = c.prev.ModRevision
		}
		rs.create(coder.EncodeVersionKey(c.rec.Key, c.rec.ModRevision), coder.EncodeVersion(c.rec))
	}
	for _, c := range s.changes {
		if ks := s.keys[string(c.rec.Key)]; ks.rec == c.rec { // the key's last change
			rs.addIndex(ks)
			rs.addAttachment(ks)
		}
	}
	if len(log) > 0 {
		for i, row := range coder.EncodeLog(log) {
			rs.create(coder.EncodeLogKey(s.alloc.Last(), uint16(i+1)), row)
		}
	}
	for id, l := range s.leases {
		if l == nil {
			rs.removed = append(rs.removed, coder.EncodeLeaseKey(id))
		} else {
			rs.replaced = append(rs.replaced, sqlstore.Row{Key: coder.EncodeLeaseKey(id), Value: coder.EncodeLease(*l)})
		}
	}
	for k, v := range s.meta {
		if v == nil {
			rs.removed = append(rs.removed, []byte(k))
		} else {
			rs.replaced = append(rs.replaced, sqlstore.Row{Key: []byte(k), Value: v})
		}
	}
	// Rows in key order touch the engine's pages in order.
	slices.SortFunc(rs.created, func(a, b sqlstore.Row) int { return bytes.Compare(a.Key, b.Key) })
	slices.SortFunc(rs.swaps, func(a, b swap) int { return bytes.Compare(a.key, b.key) })
	return rs
}

func (rs *rowSet) create(key, value []byte) {
	rs.created = append(rs.created, sqlstore.Row{Key: key, Value: value})
}

// addIndex adds the key's index row. A tombstone's index row may have been
// removed by compaction meanwhile, which makes no difference.
func (rs *rowSet) addIndex(ks *keyState) {
	key, val := coder.EncodeIndexKey(ks.rec.Key), coder.EncodeIndex(ks.index())
	if !ks.base.exists {
		rs.create(key, val)
		return
	}
	rs.swaps = append(rs.swaps, swap{key: key, newVal: val, oldVal: coder.EncodeIndex(ks.base.Index), missingOK: ks.base.Tombstone})
}

// addAttachment moves the key's attachment row from the lease that held it to
// the one that holds it now.
func (rs *rowSet) addAttachment(ks *keyState) {
	var before int64
	if ks.base.live() {
		before = ks.base.Lease
	}
	after := ks.rec.Lease // 0 on a tombstone
	if before == after {
		return
	}
	if before != 0 {
		rs.removed = append(rs.removed, coder.EncodeAttachmentKey(before, ks.rec.Key))
	}
	if after != 0 {
		rs.create(coder.EncodeAttachmentKey(after, ks.rec.Key), coder.Empty())
	}
}

// entry returns what the index cache keeps of the key.
func (ks *keyState) entry() indexEntry { return indexEntry{Index: ks.index(), exists: true} }

// index returns the key's new index entry.
func (ks *keyState) index() coder.Index {
	return coder.Index{
		ModRevision: ks.rec.ModRevision, PrevRevision: ks.base.ModRevision, CreateRevision: ks.rec.CreateRevision,
		Version: ks.rec.Version, Lease: ks.rec.Lease, Tombstone: ks.rec.Tombstone, Gap: ks.changes > 1,
	}
}
