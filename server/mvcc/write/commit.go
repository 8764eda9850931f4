package write

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"github.com/sqlbrain/sqlbrain/watch"
)

// commit commits s in one atomic step, and publishes it. The caller answers the requests
// afterwards. waiting are the requests whose changes are in s. On an error nothing was written,
// and nothing will be, except with mvcc.ErrLeaderLost.
func (p *Pipeline) commit(ctx context.Context, s *batchState, waiting []*request) error {
	if s.empty() {
		// Nothing to write: the outcomes are those of linearizable reads.
		return mvcc.PublicError(ctx, p.cfg.Leader.VerifyLeader(ctx))
	}
	rows := s.rows()
	for failures := 1; ; failures++ {
		want := p.cfg.Fence.Next(s.alloc.Last())
		started := time.Now()
		committed, err := p.attempt(ctx, rows, want, len(s.presumed) > 0)
		p.cfg.Metrics.commit.Observe(time.Since(started).Seconds())
		switch {
		case committed:
			p.cfg.Metrics.batchChanges.Observe(float64(len(s.changes)))
			return p.finish(s)
		case err == nil:
			// The outcome was unknown, and resolved: the commit did not take effect.
		case errors.Is(err, sqlstore.ErrFull):
			p.cfg.Leader.Refused(err)
			return mvcc.PublicError(ctx, err)
		// CommitTimeout
		case errors.Is(err, sqlstore.ErrUnavailable), errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			p.cfg.Log.Warn("the database refused a commit, trying again", "error", err)
		default:
			return mvcc.PublicError(ctx, err)
		}
		p.cfg.Metrics.commitRetries.Inc()
		if !slices.ContainsFunc(waiting, func(r *request) bool { return !r.abandoned.Load() }) {
			return mvcc.ErrTimeout
		}
		if err := retry.Database.Wait(ctx, failures); err != nil {
			return p.cfg.Leader.ErrNotLeader()
		}
	}
}

// attempt commits once. If it returns false and no error, the commit did not take effect and
// may be tried again. With presumed, keys were presumed absent, which is the likely cause of a
// conflict.
func (p *Pipeline) attempt(ctx context.Context, rows *rowSet, want coder.FenceToken,
	presumed bool) (committed bool, err error) {
	outcome, err := p.cfg.Fence.Commit(ctx, want, p.cfg.Limits.CommitTimeout, presumed, rows.addTo)
	var conflict *sqlstore.Conflict
	switch {
	case err == nil:
		p.cfg.Leader.Seen(p.cfg.Fence.Value())
		return outcome == fence.Written, nil
	case errors.Is(err, fence.ErrDeposed), errors.Is(err, fence.ErrDataLost):
		ended := p.cfg.Leader.End(err)
		if outcome == fence.NotWritten {
			return false, ended
		}
		// The error must not say that nothing was written: the request would be executed
		// again elsewhere.
		return false, fmt.Errorf("%w: %w", mvcc.ErrLeaderLost, err)
	case outcome == fence.Unknown:
		return false, mvcc.ErrLeaderLost // ctx ended: the next leader has to resolve it
	case errors.As(err, &conflict) && presumed:
		return false, fmt.Errorf("%w: %w", errPresumed, conflict)
	case errors.As(err, &conflict):
		return false, fmt.Errorf("%w: %w", errStale, conflict)
	default:
		return false, err
	}
}

// finish publishes a durable batch. The index cache is first: a reader may see the new
// revision only when the sequencer knows it too.
func (p *Pipeline) finish(s *batchState) error {
	events := make([]*watch.Event, len(s.changes))
	for i, c := range s.changes {
		events[i] = event(c)
	}
	p.index.update(s.keys, len(s.keys) > aloneKeys) // so many keys must not evict those in use
	err := p.cfg.Leader.Publish(Committed{Events: events, Revision: s.alloc.Last(), Bytes: s.bytes, Auth: s.auth,
		Then: s.after})
	p.aheads.note(s)
	p.verdicts.note(s)
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

// rowSet has the rows of a commit, except the fence row.
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

// addIndex adds the key's index row. Compaction may have removed the index row of a tombstone,
// which is equivalent.
func (rs *rowSet) addIndex(ks *keyState) {
	key, val := coder.EncodeIndexKey(ks.rec.Key), coder.EncodeIndex(ks.index())
	if !ks.base.exists {
		rs.create(key, val)
		return
	}
	rs.swaps = append(rs.swaps, swap{key: key, newVal: val, oldVal: coder.EncodeIndex(ks.base.Index),
		missingOK: ks.base.Tombstone})
}

// addAttachment moves the key's attachment row from its previous lease to its new one.
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
