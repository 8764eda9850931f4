package quota

import (
	"bytes"
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Count is how many bytes the counted rows take (coder.CountedBounds), as the leader knows it. Commits add to it what
// they change, and the fence row holds the sum after each of them. Compaction does not write the fence row: what it
// removes is summed up in the removed row. So the sum is exact after a failover, and after a commit in doubt was
// resolved.
//
// No commit reads anything for it: the sequencer knows the rows that it replaces. The only rows that change without it
// are those that compaction removes, among them index rows of tombstones. The sequencer may replace such a row at the
// same time, without knowing whether it is still there. Remove finds out which were. Only after a removal whose
// outcome was unknown may the count be wrong, by such rows that were created again before it was known.
//
// Safe for concurrent use.
type Count struct {
	// turn is held while compaction removes rows, and while a page of a scan is read, so that neither sees half of the
	// other.
	turn *semaphore.Weighted

	mu       sync.Mutex
	known    bool
	added    int64 // by commits: coder.FenceToken.Bytes
	sequence int64 // of the fence row after the newest commit
	removed  int64 // by compaction, as of the removed row; valid during a scan, -1 before its first page
	// watched are keys of tombstones' index rows that compaction removes, and whether a commit has replaced them since.
	watched  map[string]bool
	removing bool // Remove is under way
	scan     *scan
}

// NewCount returns the count of a leader that has written token to the fence row. If that is the first one, the table
// is empty.
func NewCount(token coder.FenceToken) *Count {
	return &Count{
		turn: semaphore.NewWeighted(1), known: token.Bytes > 0 || token.Sequence == 1, added: token.Bytes,
		sequence: token.Sequence,
		watched:  make(map[string]bool),
	}
}

// Known reports whether the bytes are known. If not, a Scan has to count them.
func (c *Count) Known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// growth returns by how many bytes op changes the counted rows, if the rows are as the op expects.
func growth(op *sqlstore.Op) (n int64) {
	if coder.IsCounted(op.Key) {
		if op.Value != nil {
			n += int64(len(op.Key) + len(op.Value))
		}
		if op.Old != nil {
			n -= int64(len(op.Key) + len(op.Old))
		}
	}
	return n
}

// Growth returns by how many bytes a commit of ops changes the counted rows. Put and Del must have in Old what they
// replace.
func Growth(ops []sqlstore.Op) (n int64) {
	for i := range ops {
		n += growth(&ops[i])
	}
	return n
}

// Next returns what the fence row has to hold as Bytes after a commit that changes the counted rows by n bytes.
func (c *Count) Next(n int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	return max(c.added+n, 0) // below 0 it is wrong, and the next scan corrects it
}

// Committed records a commit of ops, after which the fence row's sequence is sequence. A commit that was not written
// has no ops.
func (c *Count) Committed(sequence int64, ops []sqlstore.Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence = sequence
	if c.scan != nil {
		c.scan.signal()
	}
	for i := range ops {
		op := &ops[i]
		n := growth(op)
		if _, watched := c.watched[string(op.Key)]; watched && op.Kind == sqlstore.OpCASOrPut {
			if c.removing {
				c.watched[string(op.Key)] = true
			} else { // the row was gone
				n += int64(len(op.Key) + len(op.Old))
			}
		}
		c.added += n
		if c.scan != nil && n != 0 {
			c.scan.changed(sequence, op.Key, n)
		}
	}
	if !c.removing && len(ops) > 0 {
		clear(c.watched) // no later commit expects these rows
	}
}

// RemovedRow is a row that compaction removes.
type RemovedRow struct {
	Key   []byte
	Bytes int64 // of key and value
	Index bool  // it is the index row of a tombstone, and removed only if it has not changed
}

// Remove calls remove, which removes rows and the bytes of them from the removed row, and records the result.
// tombstones are the keys of the index rows that remove is going to read, and may remove. Errors: those of remove,
// ctx's.
func (c *Count) Remove(ctx context.Context, tombstones [][]byte,
	remove func() ([]RemovedRow, error)) ([]RemovedRow, error) {
	if err := c.turn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer c.turn.Release(1)
	c.mu.Lock()
	c.removing = true
	for _, key := range tombstones {
		c.watched[string(key)] = false
	}
	c.mu.Unlock()
	rows, err := remove()
	c.mu.Lock()
	defer c.mu.Unlock()
	watched := c.watched
	c.watched, c.removing = make(map[string]bool), false
	if err != nil {
		if c.scan != nil {
			c.scan.interrupted = true // the rows may be gone
		}
		return nil, err
	}
	for _, row := range rows {
		if c.removed >= 0 { // a scan that has read no page yet takes what the removed row holds then
			c.removed += row.Bytes
		}
		if row.Index {
			if watched[string(row.Key)] {
				// A commit has counted that it replaced the row. It did, or it created it after the removal.
				c.added += row.Bytes
				continue
			}
			c.watched[string(row.Key)] = false // by a commit that is under way
		}
		if c.scan != nil && bytes.Compare(row.Key, c.scan.through) < 0 {
			c.scan.bytes -= row.Bytes
		}
	}
	return rows, nil
}
