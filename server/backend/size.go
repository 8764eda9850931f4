package backend

import (
	"context"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// sizeInterval is how often the database is asked for its size.
const sizeInterval = 5 * time.Second

// sizeGauge knows about how much space the table takes: what the database said
// last, plus what was written since.
type sizeGauge struct {
	store sqlstore.Store
	quota int64

	mu          sync.Mutex
	total, used int64
	grown       int64 // written since the last refresh
}

func (g *sizeGauge) refresh(ctx context.Context) error {
	g.mu.Lock()
	before := g.grown
	g.mu.Unlock()
	total, used, err := g.store.Size(ctx)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total, g.used = total, used
	g.grown -= before
	return nil
}

func (g *sizeGauge) grow(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.grown += n
}

func (g *sizeGauge) get() (total, used int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total, g.used
}

// fits reports whether a write of about cost bytes stays below the quota. Free pages
// count as free.
func (g *sizeGauge) fits(cost int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.quota <= 0 || g.used+g.grown+cost < g.quota
}

// The sizes that etcd counts for a write against the quota, in addition to keys and values.
const (
	putOverhead   = 256
	grantOverhead = 64
)

// cost returns what etcd counts for t against the quota: the larger of its two branches.
func (t *Txn) cost() int64 {
	return max(cost(t.Then), cost(t.Else))
}

func cost(ops []Op) (sum int64) {
	for _, op := range ops {
		switch {
		case op.Put != nil:
			sum += putOverhead + int64(len(op.Put.Key)+len(op.Put.Value))
		case op.Txn != nil:
			sum += op.Txn.cost()
		}
	}
	return sum
}

// watchSize keeps the gauge fresh.
func (b *Backend) watchSize(ctx context.Context) {
	tick := time.NewTicker(sizeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		bounded, cancel := context.WithTimeout(ctx, sizeInterval)
		if err := b.size.refresh(bounded); err != nil && ctx.Err() == nil {
			b.log.Warn("cannot read the size of the database", "error", err)
		}
		cancel()
	}
}

// watchQuota raises the NOSPACE alarm when a request would have reached the quota.
func (l *leader) watchQuota(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.noSpace:
			if _, err := l.RaiseAlarm(ctx, Alarm{MemberID: l.MemberID(), Type: AlarmNoSpace}); err != nil && ctx.Err() == nil {
				l.log.Warn("raising the NOSPACE alarm failed", "error", err)
			}
		}
	}
}

// checkSpace returns ErrNoSpace if a write of about cost bytes would reach the quota, and
// has the NOSPACE alarm raised, which stays until it is disarmed.
func (b *Backend) checkSpace(cost int64) error {
	if b.size.fits(cost) {
		return nil
	}
	if !b.alarms.has(AlarmNoSpace) {
		select {
		case b.noSpace <- struct{}{}:
		default: // on its way
		}
	}
	return ErrNoSpace
}

// Defragment lets the engine give unused space back.
func (b *Backend) Defragment(ctx context.Context) error {
	if err := b.store.Defragment(ctx); err != nil {
		return err
	}
	return b.size.refresh(ctx)
}
