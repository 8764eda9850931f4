package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
)

// checkpointCommand writes the remaining time of leases to the table. It computes the time
// when it is evaluated.
type checkpointCommand struct {
	l       *Lessor
	ids     []int64
	renewed bool // writes the full TTL
}

// Evaluate implements write.Command.
func (c *checkpointCommand) Evaluate(_ context.Context, tx *write.Tx) error {
	now := c.l.cfg.Clock()
	for _, id := range c.ids {
		if !tx.LeaseOpen(id) {
			continue // it was revoked
		}
		if staged := tx.BatchLeases()[id]; staged != nil && (!c.renewed || staged.Remaining == 0) {
			continue // an earlier command of the batch writes at least as much
		}
		if row, ok := c.l.toWrite(id, c.renewed, now); ok {
			tx.SetLease(id, &row)
		}
	}
	rows := tx.BatchLeases() // has the rows of the whole batch when the commit is done
	tx.OnCommit(func() { c.l.written(c.ids, rows) })
	return nil
}

// toWrite returns the row that a checkpoint writes for lease id: the full TTL after a renewal,
// else the time remaining at now. Later renewals must assume that the table holds no more than
// that. Only the sequencer may call it.
func (l *Lessor) toWrite(id int64, renewed bool, now time.Time) (row coder.Lease, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	le := l.leases[id]
	if le == nil {
		return coder.Lease{}, false
	}
	row = coder.Lease{ID: id, TTL: le.ttl, Policy: le.policy}
	if remaining := le.remaining(now); !renewed && remaining < le.ttl {
		row.Remaining = remaining
		le.persisted = min(le.persisted, remaining)
	}
	return row, true
}

// written records the remaining time that the table holds for leases after a commit. rows has
// all rows of leases in the commit, because the last command for a lease decides. Only the
// sequencer may call it.
func (l *Lessor) written(ids []int64, rows map[int64]*coder.Lease) {
	now := l.cfg.Clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		le, row := l.leases[id], rows[id]
		if le == nil || row == nil {
			continue
		}
		le.persisted = cmp.Or(row.Remaining, row.TTL)
		if !le.over(now) {
			l.schedule(le, now)
		}
	}
}

// checkpoint writes the remaining time of leases to the table.
func (l *Lessor) checkpoint(ctx context.Context, ids []int64) error {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	return l.pipeline.Submit(ctx, auth.System, &checkpointCommand{l: l, ids: ids})
}

// HandOver refuses further renewals, then writes the remaining time of all leases for which
// the table holds more. The order matters: the next leader would not know of a renewal after
// the last checkpoint.
func (l *Lessor) HandOver(ctx context.Context) error {
	var ids []int64
	now := l.cfg.Clock()
	l.mu.Lock()
	l.closed = true
	for id, le := range l.leases {
		if le.remaining(now) < le.persisted {
			ids = append(ids, id)
		}
	}
	l.mu.Unlock()
	for some := range slices.Chunk(ids, checkpointBatch) {
		if err := l.checkpoint(ctx, some); err != nil {
			return fmt.Errorf("writing lease checkpoints: %w", err)
		}
	}
	return nil
}
