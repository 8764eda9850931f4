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

// exceeded reports whether the quota is used up. Free pages count as free.
func (g *sizeGauge) exceeded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.quota > 0 && g.used+g.grown >= g.quota
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

// watchQuota raises the NOSPACE alarm when a request found the quota used up.
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

// checkSpace returns ErrNoSpace if the quota is used up, and has the NOSPACE
// alarm raised, which stays until it is disarmed.
func (b *Backend) checkSpace() error {
	if !b.size.exceeded() {
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
