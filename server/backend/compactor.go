package backend

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// compactor removes the rows that no readable revision needs. The log rows below
// the compact revision are its work list: each names the versions its commit
// replaced. A log row is removed behind the rows it names, so that after a
// restart the work goes on where it stopped. Work is proportional to the
// garbage, and paced: after each chunk it rests as long as the chunk took.
type compactor struct {
	b    *leader
	wake chan struct{}

	patience time.Duration // a caller of wait gives up after no chunk was removed for so long

	mu      sync.Mutex
	done    int64 // physically compacted up to this revision
	waiters map[chan struct{}]int64
	removed int   // chunks
	failure error // of the newest attempt to remove
}

// compactPatience is compactor.patience: far longer than a chunk takes.
const compactPatience = 30 * time.Second

// compactChunk is how many rows one statement or transaction removes.
const compactChunk = 500

func newCompactor(b *leader) *compactor {
	c := &compactor{b: b, wake: make(chan struct{}, 1), patience: compactPatience, done: -1, waiters: make(map[chan struct{}]int64)}
	c.wake <- struct{}{} // resume what a restart interrupted
	return c
}

// Compact discards history below rev: reads below it answer ErrCompacted from
// then on. With physical it returns once the rows are gone, else they are
// removed in the background. It returns the store's revision. Errors:
// ErrCompacted at or below the compact revision, ErrFutureRevision; with physical,
// ErrTimeout if no rows could be removed for compactPatience.
func (b *Backend) Compact(ctx context.Context, rev int64, physical bool) (int64, error) {
	bounded, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return 0, err
	}
	if err := b.alarms.checkWrite(false); err != nil {
		return 0, err
	}
	c := &compactCommand{l: l, rev: rev}
	if err := l.submit(bounded, c); err != nil {
		return 0, err
	}
	if physical {
		if err := l.compactor.wait(ctx, rev); err != nil {
			return 0, err
		}
	}
	return c.current, nil
}

// compactCommand moves the compaction mark.
type compactCommand struct {
	l            *leader
	rev, current int64
}

func (c *compactCommand) touches() (keys, fresh [][]byte) { return nil, nil }
func (c *compactCommand) size() int                       { return 0 }

func (c *compactCommand) evaluate(_ context.Context, st *stage) error {
	if st.metaPending(coder.CompactKey()) {
		return errNextBatch // another compaction of this batch is not durable yet
	}
	c.current = st.rev - 1
	switch {
	case c.rev <= c.l.compacted.Load():
		return ErrCompacted
	case c.rev > c.current:
		return ErrFutureRevision
	}
	st.setMeta(coder.CompactKey(), coder.EncodeInt64(c.rev))
	st.committed(func() {
		c.l.noteCompacted(c.rev)
		select {
		case c.l.compactor.wake <- struct{}{}:
		default:
		}
		c.l.log.Info("compacted", "revision", c.rev)
	})
	return nil
}

// wait returns once everything below rev is physically removed. As long as rows are
// being removed it waits; if none were for c.patience it returns ErrTimeout.
func (c *compactor) wait(ctx context.Context, rev int64) error {
	done := make(chan struct{})
	c.mu.Lock()
	if c.done >= rev {
		c.mu.Unlock()
		return nil
	}
	c.waiters[done] = rev
	before := c.removed
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiters, done)
	}()
	tick := time.NewTicker(c.patience)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-c.b.sequencerDone:
			return ErrLeaderLost
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		c.mu.Lock()
		removed, failure := c.removed, c.failure
		c.mu.Unlock()
		if removed == before {
			c.b.log.Warn("a physical compaction is answered before its rows are gone, removing them continues", "revision", rev, "error", failure)
			return fmt.Errorf("%w: no compacted rows were removed for %s", ErrTimeout, c.patience)
		}
		before = removed
	}
}

// note takes in how an attempt to remove rows ended.
func (c *compactor) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure = err; err == nil {
		c.removed++
	}
}

func (c *compactor) reached(rev int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = rev
	for w, want := range c.waiters {
		if want <= rev {
			close(w)
			delete(c.waiters, w)
		}
	}
}

// run removes garbage whenever the compact revision rose.
func (c *compactor) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		retry := &retrier{}
		for {
			rev := c.b.compacted.Load()
			err := c.removeBelow(ctx, rev)
			if err == nil {
				c.reached(rev)
				break
			}
			if ctx.Err() != nil {
				return
			}
			c.note(err)
			c.b.metrics.compactionErrors.Inc()
			c.b.log.Warn("removing compacted rows failed, trying again", "revision", rev, "error", err)
			if retry.wait(ctx) != nil {
				return
			}
		}
	}
}

// removeBelow works off the log rows of commits that ended below rev.
func (c *compactor) removeBelow(ctx context.Context, rev int64) error {
	if rev <= 0 {
		return nil
	}
	lo, hi := coder.LogBounds(0, rev-1)
	it := c.b.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi})
	defer func() { _ = it.Close() }()
	chunk := &garbage{}
	for it.Next() {
		at, _, err := coder.DecodeLogKey(it.Key())
		if err != nil {
			return err
		}
		c.b.metrics.compactionLag.Set(float64(rev - at))
		changes, err := coder.DecodeLog(it.Value())
		if err != nil {
			return err
		}
		for _, change := range changes {
			chunk.add(change)
			if chunk.len() >= compactChunk {
				if err := c.remove(ctx, chunk); err != nil {
					return err
				}
			}
		}
		chunk.rows = append(chunk.rows, it.Key())
	}
	if err := it.Err(); err != nil {
		return err
	}
	if chunk.len() > 0 {
		if err := c.remove(ctx, chunk); err != nil {
			return err
		}
	}
	c.b.metrics.compactionLag.Set(0)
	return nil
}

// garbage is a chunk of rows to remove.
type garbage struct {
	rows       [][]byte
	tombstones []coder.Change // their index rows go too, if they are still the newest
}

func (g *garbage) len() int { return len(g.rows) + len(g.tombstones) }

// add adds what a change below the compact revision left behind: the version it
// replaced, and itself if it is a tombstone.
func (g *garbage) add(c coder.Change) {
	if c.PrevRevision > 0 {
		g.rows = append(g.rows, coder.EncodeVersionKey(c.Key, c.PrevRevision))
	}
	if c.Tombstone {
		g.rows = append(g.rows, coder.EncodeVersionKey(c.Key, c.Revision))
		g.tombstones = append(g.tombstones, c)
	}
}

// remove removes the chunk's rows and empties it.
func (c *compactor) remove(ctx context.Context, g *garbage) error {
	started := time.Now()
	batch := c.b.store.BeginBatchWrite()
	// A batch takes a key once, and damaged log rows may name a version twice.
	slices.SortFunc(g.rows, bytes.Compare)
	for _, k := range slices.CompactFunc(g.rows, bytes.Equal) {
		batch.Del(k)
	}
	if err := c.addIndexRows(ctx, g.tombstones, batch); err != nil {
		return err
	}
	// Removing a row twice is harmless, so an unknown outcome is simply tried
	// again from the log rows that are left.
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	c.note(nil)
	c.b.metrics.compactedRows.Add(float64(batch.Len()))
	*g = garbage{}
	return rest(ctx, time.Since(started))
}

// addIndexRows adds the index rows of keys that are still deleted. Each is removed
// only if it did not change: the sequencer may recreate the key at any moment,
// and then either finds the tombstone or finds nothing, to the same effect.
func (c *compactor) addIndexRows(ctx context.Context, tombstones []coder.Change, batch sqlstore.BatchWrite) error {
	if len(tombstones) == 0 {
		return nil
	}
	newest := make(map[string]int64, len(tombstones))
	for _, t := range tombstones {
		newest[string(t.Key)] = t.Revision
	}
	keys := make([][]byte, 0, len(newest))
	revs := make([]int64, 0, len(newest))
	for k, rev := range newest {
		keys = append(keys, coder.EncodeIndexKey([]byte(k)))
		revs = append(revs, rev)
	}
	values, err := c.b.store.MultiGet(ctx, keys)
	if err != nil {
		return err
	}
	for i, v := range values {
		if v == nil {
			continue
		}
		x, err := coder.DecodeIndex(v)
		if err != nil {
			return err
		}
		if x.Tombstone && x.ModRevision == revs[i] {
			batch.DelCurrent(keys[i], v)
		}
	}
	return nil
}

// rest pauses for d, at most a second, so that clients get the database too.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(min(d, time.Second))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
