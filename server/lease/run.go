package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Run revokes expired leases and checkpoints the others until ctx ends.
func (l *Lessor) Run(ctx context.Context) {
	var revoking sync.WaitGroup
	defer revoking.Wait()
	slots := make(chan struct{}, expiryParallel)
	var waiting []*lease // expired leases that wait for a slot, in the order of their due times
	for ctx.Err() == nil {
		expired, checkpoints, next := l.popDue(l.cfg.Clock())
		waiting = append(waiting, expired...)
		if len(checkpoints) > 0 {
			if err := l.checkpoint(ctx, checkpoints); err != nil && ctx.Err() == nil {
				l.cfg.Log.Warn("writing lease checkpoints failed", "leases", len(checkpoints), "error", err)
			}
		}
		var slot chan struct{} // nil: none is needed
		if len(waiting) > 0 {
			slot = slots
		}
		select {
		case <-ctx.Done():
		case slot <- struct{}{}:
			le := waiting[0]
			waiting = waiting[1:]
			revoking.Go(func() {
				l.expire(ctx, le)
				<-slots
			})
		case <-time.After(next):
		case <-l.wake:
		}
	}
}

// expiryParallel is the maximum number of concurrent revocations of expired leases.
const expiryParallel = 256

// Start starts the clocks of the loaded leases at their last checkpoint. It must be called
// when the previous leader can no longer acknowledge renewals.
func (l *Lessor) Start() {
	now := l.cfg.Clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, le := range l.leases {
		l.startClock(le, now.Add(timing.LeaseGrace))
	}
}

// Load reads all leases from store's table. From now on they change through p. Load must be
// called after the leader's change of the fence row, so that no other leader changes their
// rows afterwards. The clocks of the leases stand still until Start.
func (l *Lessor) Load(ctx context.Context, store sqlstore.Store, p *write.Pipeline) error {
	l.pipeline = p
	lo, hi := coder.LeaseBounds()
	for stored, err := range store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return fmt.Errorf("reading the leases: %w", err)
		}
		row, err := coder.DecodeLease(stored.Key, stored.Value)
		if err != nil {
			return fmt.Errorf("reading the leases: %w", err)
		}
		l.leases[row.ID] = newLease(row)
	}
	return nil
}
