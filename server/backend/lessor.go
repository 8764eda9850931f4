package backend

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// lessor keeps the time of leases. That a lease exists, and which keys it holds,
// is in the table and changes only through the pipeline; when it ends is kept
// here, on the leader. The remaining time is written down now and then
// (checkpoints), so that a restart neither revives a lease nor ends it early: a
// lease goes on from its last checkpoint, at most half its life too late.
type lessor struct {
	b *leader

	mu     sync.Mutex
	leases map[int64]*lease
	due    dueHeap
	wake   chan struct{} // the heap's head changed
}

// lease is one lease's clock. The lessor's mutex guards it.
type lease struct {
	id, ttl int64 // ttl in seconds
	policy  bool
	expiry  time.Time
	// persisted is the remaining time, in seconds, that the table holds.
	persisted int64
	// due is when run has to look at it next: a checkpoint, or the end.
	due      time.Time
	position int // in the heap, -1 if not there
	// ended is closed when the lease was revoked. expiring says that its time is
	// up and the revocation is on its way.
	ended    chan struct{}
	expiring bool
}

const (
	// checkpointInterval is the longest time between checkpoints, as in etcd.
	checkpointInterval = 5 * time.Minute
	// minCheckpoint is the remaining time, in seconds, below which a lease is not
	// checkpointed any more.
	minCheckpoint = 4
	// expiryParallel is how many revocations of expired leases are under way.
	expiryParallel = 256
)

// loadLessor restores all leases. Their clocks go on from the last checkpoint.
func loadLessor(ctx context.Context, b *leader) (*lessor, error) {
	l := &lessor{b: b, leases: make(map[int64]*lease), wake: make(chan struct{}, 1)}
	lo, hi := coder.LeaseBounds()
	it := b.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi})
	defer func() { _ = it.Close() }()
	now := time.Now()
	for it.Next() {
		row, err := coder.DecodeLease(it.Key(), it.Value())
		if err != nil {
			return nil, fmt.Errorf("reading the leases: %w", err)
		}
		l.add(row, now)
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("reading the leases: %w", err)
	}
	return l, nil
}

// add starts the clock of a lease that the table holds.
func (l *lessor) add(row coder.Lease, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	remaining := row.TTL
	if row.Remaining > 0 {
		remaining = row.Remaining
	}
	le := &lease{id: row.ID, ttl: row.TTL, policy: row.Policy, persisted: remaining, position: -1, ended: make(chan struct{})}
	le.expiry = now.Add(time.Duration(remaining) * time.Second)
	l.leases[row.ID] = le
	l.schedule(le, now)
}

// schedule puts le where the heap needs it. The mutex is held.
func (l *lessor) schedule(le *lease, now time.Time) {
	le.due = le.expiry
	if le.persisted >= minCheckpoint {
		half := time.Duration(le.persisted) * time.Second / 2
		// The checkpoint is due when the remaining time has fallen to half of
		// what the table holds, or by the longest interval.
		at := le.expiry.Add(-time.Duration(le.persisted) * time.Second).Add(min(half, checkpointInterval))
		if at.Before(le.expiry) && at.After(now) {
			le.due = at
		}
	}
	if le.position < 0 {
		heap.Push(&l.due, le)
	} else {
		heap.Fix(&l.due, le.position)
	}
	if le.position == 0 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// remove ends a lease that the table does not hold any more.
func (l *lessor) remove(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	le := l.leases[id]
	if le == nil {
		return
	}
	delete(l.leases, id)
	if le.position >= 0 {
		heap.Remove(&l.due, le.position)
	}
	close(le.ended)
}

func (l *lessor) exists(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leases[id] != nil
}

func (l *lessor) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.leases)
}

// ids returns the leases by the time they end.
func (l *lessor) ids() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*lease, 0, len(l.leases))
	for _, le := range l.leases {
		all = append(all, le)
	}
	slices.SortFunc(all, func(a, b *lease) int {
		return cmp.Or(a.expiry.Compare(b.expiry), cmp.Compare(a.id, b.id))
	})
	ids := make([]int64, len(all))
	for i, le := range all {
		ids[i] = le.id
	}
	return ids
}

// status returns a lease's granted and remaining seconds.
func (l *lessor) status(id int64) (ttl, remaining int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	le := l.leases[id]
	if le == nil {
		return 0, 0, false
	}
	return le.ttl, int64(time.Until(le.expiry).Seconds()), true
}

// renew starts a lease's time anew. persist reports that the table holds a
// shorter remaining time, which would end the lease early after a restart. If
// the lease's time is up, ended is what to wait for.
func (l *lessor) renew(id int64) (ttl int64, persist bool, ended <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	le := l.leases[id]
	if le == nil {
		return 0, false, nil, false
	}
	now := time.Now()
	if le.expiring || !now.Before(le.expiry) {
		return 0, false, le.ended, true
	}
	le.expiry = now.Add(time.Duration(le.ttl) * time.Second)
	l.schedule(le, now)
	return le.ttl, le.persisted < le.ttl, nil, true
}

// run revokes leases whose time is up, and checkpoints the others.
func (l *lessor) run(ctx context.Context) {
	var revoking sync.WaitGroup
	defer revoking.Wait()
	slots := make(chan struct{}, expiryParallel)
	for {
		expired, checkpoints, next := l.takeDue(time.Now())
		for _, id := range expired {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			revoking.Go(func() {
				defer func() { <-slots }()
				l.expire(ctx, id)
			})
		}
		if len(checkpoints) > 0 {
			if err := l.checkpoint(ctx, checkpoints); err != nil && ctx.Err() == nil {
				l.b.log.Warn("writing lease checkpoints failed", "leases", len(checkpoints), "error", err)
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-l.wake:
			timer.Stop()
		}
	}
}

// takeDue takes what is due at now off the heap, and returns how long there is
// nothing to do.
func (l *lessor) takeDue(now time.Time) (expired []int64, checkpoints []coder.Lease, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.due) > 0 && !l.due[0].due.After(now) {
		le := l.due[0]
		if !now.Before(le.expiry) {
			heap.Pop(&l.due)
			le.expiring = true
			expired = append(expired, le.id)
			continue
		}
		checkpoints = append(checkpoints, le.row(now))
		le.persisted = int64(le.expiry.Sub(now).Seconds()) // tried once; the next one is due later
		l.schedule(le, now)
	}
	if len(l.due) == 0 {
		return expired, checkpoints, time.Hour
	}
	return expired, checkpoints, l.due[0].due.Sub(now)
}

// row returns the lease's row with the time that remains at now.
func (le *lease) row(now time.Time) coder.Lease {
	return coder.Lease{ID: le.id, TTL: le.ttl, Policy: le.policy, Remaining: max(1, int64(le.expiry.Sub(now).Seconds()))}
}

// expire revokes a lease whose time is up, however often it takes.
func (l *lessor) expire(ctx context.Context, id int64) {
	retry := &retrier{}
	for {
		bounded, cancel := l.b.bound(ctx)
		err := l.b.submit(bounded, &revokeCommand{l: l.b, id: id})
		cancel()
		switch {
		case err == nil:
			l.b.metrics.leasesExpired.Inc()
			return
		case errors.Is(err, ErrLeaseNotFound), errors.Is(err, ErrNotServing), errors.Is(err, ErrNotLeader), errors.Is(err, ErrLeaderLost):
			return
		}
		l.b.log.Warn("revoking an expired lease failed, trying again", "lease", fmt.Sprintf("%016x", uint64(id)), "error", err)
		if retry.wait(ctx) != nil {
			return
		}
	}
}

// checkpoint writes down the remaining time of leases.
func (l *lessor) checkpoint(ctx context.Context, rows []coder.Lease) error {
	ctx, cancel := l.b.bound(ctx)
	defer cancel()
	return l.b.submit(ctx, &checkpointCommand{l: l.b, rows: rows})
}

// checkpointAll writes down all leases' remaining time, for a clean stop.
func (l *lessor) checkpointAll(ctx context.Context) error {
	now := time.Now()
	var rows []coder.Lease
	l.mu.Lock()
	for _, le := range l.leases {
		if row := le.row(now); row.Remaining < le.persisted && now.Before(le.expiry) {
			rows = append(rows, row)
		}
	}
	l.mu.Unlock()
	if len(rows) == 0 || l.b.lost() != nil {
		return nil
	}
	if err := l.checkpoint(ctx, rows); err != nil {
		return fmt.Errorf("writing lease checkpoints: %w", err)
	}
	return nil
}

// dueHeap is a heap of leases by due time.
type dueHeap []*lease

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	le := x.(*lease)
	le.position = len(*h)
	*h = append(*h, le)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	le := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	le.position = -1
	return le
}
