package backend

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// lessor keeps the time of leases. The table records that a lease exists and which
// keys it holds, and only the pipeline changes that. When a lease ends is kept here,
// on the leader. Checkpoints write the remaining time to the table, so that the next
// leader neither revives a lease nor ends it early: it continues at the last
// checkpoint, at most half a lease's life too late.
//
// The reply to a grant or a renewal promises that the lease lives for its TTL from
// then on, whatever becomes of this leader. Therefore, as long as this leader can
// acknowledge renewals, the remaining time in the table is at least the time up to
// the promised end:
//
//   - A checkpoint computes the remaining time while it is evaluated, on the
//     sequencer, in the step that commits it. In the same critical section it lowers
//     persisted. A renewal before that is in the row. A renewal after it finds that
//     the table may hold too little.
//   - A renewal that finds less than the TTL in persisted is acknowledged only after
//     a commit of its own, which the sequencer orders after the checkpoint. Every
//     other renewal needs no commit: the table holds the full TTL.
//   - persisted is raised only after a commit, to what the table then holds. It is
//     never more than that: not while a commit is repeated, and not after one failed.
//     A commit that takes long, or is evaluated again, makes the row's time too long,
//     never too short.
//   - A lease whose time is up is marked under the mutex before its revocation is
//     submitted. A renewal either moves the end first, or waits for the revocation.
//   - A leader that hands over turns renewals away before it computes the last
//     checkpoints. A deposed leader cannot confirm a renewal: see authority.
//   - A new leader reads the rows after its change of the chain row, so that nothing
//     is written to them afterwards. It starts the clocks when it begins to serve: by
//     then its predecessor has lost the right to acknowledge renewals, so none of them
//     is later than the clock.
type lessor struct {
	b        *leader
	restored []coder.Lease // what the table held; until start

	mu     sync.Mutex
	leases map[int64]*lease
	due    dueHeap
	closed bool          // renewals are turned away
	wake   chan struct{} // the heap's head changed
}

// lease is one lease's clock. The lessor's mutex guards it.
type lease struct {
	id, ttl int64 // ttl in seconds
	policy  bool
	expiry  time.Time
	// persisted is the remaining time, in seconds, that the table holds at least,
	// whatever becomes of commits that are under way.
	persisted int64
	// due is when run has to look at it next: a checkpoint, or the end.
	due      time.Time
	position int // in the heap, -1 if not there
	// ended is closed when the lease was revoked. expiring says that its time is
	// up and the revocation is on its way.
	ended    chan struct{}
	expiring bool
	// revoking says that its row is marked, see revocation.go; last is the revision of
	// its end, written before ended is closed. after is the last key of its last piece,
	// and failures how many attempts to revoke it have failed in a row.
	revoking bool
	last     int64
	after    []byte
	failures int
}

const (
	// takeoverGrace is what a new leader adds to the time of the leases that it found.
	// Clients cannot renew between the last answer of the old leader and the moment
	// when they, or the members they are connected to, have found the new one. It is
	// etcd's default election timeout, by which its new leaders extend leases.
	takeoverGrace = time.Second
	// checkpointInterval is the longest time between checkpoints, as in etcd.
	checkpointInterval = 5 * time.Minute
	// minCheckpoint is the remaining time, in seconds, below which a lease is not
	// checkpointed any more.
	minCheckpoint = 4
	// checkpointBatch is the most leases that one commit checkpoints, so that other
	// writes need not wait for all of them.
	checkpointBatch = 1000
	// expiryParallel is how many revocations of expired leases are under way.
	expiryParallel = 256
)

// loadLessor reads all leases. Their clocks stand still until start.
func loadLessor(ctx context.Context, b *leader) (*lessor, error) {
	l := &lessor{b: b, leases: make(map[int64]*lease), wake: make(chan struct{}, 1)}
	lo, hi := coder.LeaseBounds()
	it := b.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi})
	defer func() { _ = it.Close() }()
	for it.Next() {
		row, err := coder.DecodeLease(it.Key(), it.Value())
		if err != nil {
			return nil, fmt.Errorf("reading the leases: %w", err)
		}
		l.restored = append(l.restored, row)
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("reading the leases: %w", err)
	}
	return l, nil
}

// start starts the clocks of the leases that the table held, at their last checkpoint.
func (l *lessor) start(now time.Time) {
	for _, row := range l.restored {
		l.add(row, now.Add(takeoverGrace))
	}
	l.restored = nil
}

// add starts the clock of a lease that the table holds: its remaining time begins at
// now.
func (l *lessor) add(row coder.Lease, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	remaining := cmp.Or(row.Remaining, row.TTL)
	le := &lease{
		id: row.ID, ttl: row.TTL, policy: row.Policy, revoking: row.Revoking, persisted: remaining, position: -1, ended: make(chan struct{}),
	}
	le.expiry = now.Add(time.Duration(remaining) * time.Second)
	l.leases[row.ID] = le
	l.schedule(le, now)
}

// schedule puts le where the heap needs it. The mutex is held.
func (l *lessor) schedule(le *lease, now time.Time) {
	le.due = le.expiry
	if le.revoking {
		le.due = now
	} else if le.persisted >= minCheckpoint {
		half := time.Duration(le.persisted) * time.Second / 2
		// The checkpoint is due when the remaining time has fallen to half of
		// what the table holds, or by the longest interval.
		at := le.expiry.Add(-time.Duration(le.persisted) * time.Second).Add(min(half, checkpointInterval))
		if at.Before(le.expiry) && at.After(now) {
			le.due = at
		}
	}
	l.enqueue(le)
}

// enqueue puts le in the heap by its due time. The mutex is held.
func (l *lessor) enqueue(le *lease) {
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

// remove ends a lease that the table no longer holds as of revision rev.
func (l *lessor) remove(id, rev int64) {
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
	le.last = rev
	close(le.ended)
}

// row returns the row of lease id; false if there is no such lease.
func (l *lessor) row(id int64) (coder.Lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	le := l.leases[id]
	if le == nil {
		return coder.Lease{}, false
	}
	return coder.Lease{ID: id, TTL: le.ttl, Policy: le.policy, Revoking: le.revoking, Remaining: le.remaining(time.Now())}, true
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
	if le.revoking {
		return le.ttl, 0, true
	}
	return le.ttl, int64(time.Until(le.expiry).Seconds()), true
}

// renew starts a lease's time anew. persist reports that the table may hold a
// shorter remaining time: then the renewal must not be acknowledged before a commit
// has written the full one. If the lease's time is up, ended is what to wait for.
// Errors: ErrLeaseNotFound; ErrNotLeader once the leadership is handed over.
func (l *lessor) renew(id int64) (ttl int64, persist bool, ended <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, false, nil, l.b.turnedAway()
	}
	le := l.leases[id]
	if le == nil {
		return 0, false, nil, ErrLeaseNotFound
	}
	now := time.Now()
	if le.expiring || le.revoking || !now.Before(le.expiry) {
		return 0, false, le.ended, nil
	}
	le.expiry = now.Add(time.Duration(le.ttl) * time.Second)
	l.schedule(le, now)
	return le.ttl, le.persisted < le.ttl, nil, nil
}

// run revokes leases whose time is up, and checkpoints the others.
func (l *lessor) run(ctx context.Context) {
	var revoking sync.WaitGroup
	defer revoking.Wait()
	slots := make(chan struct{}, expiryParallel)
	var waiting []int64 // for a slot, in the order in which they were due
	start := func() {
		id := waiting[0]
		waiting = waiting[1:]
		revoking.Go(func() {
			defer func() { <-slots }()
			l.expire(ctx, id)
		})
	}
	for {
		expired, checkpoints, next := l.takeDue(time.Now())
		waiting = append(waiting, expired...)
		if len(checkpoints) > 0 {
			if err := l.checkpoint(ctx, checkpoints); err != nil && ctx.Err() == nil {
				l.b.log.Warn("writing lease checkpoints failed", "leases", len(checkpoints), "error", err)
			}
		}
		timer := time.NewTimer(next)
		for again := false; !again; {
			var slot chan struct{}
			if len(waiting) > 0 {
				slot = slots
			}
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case slot <- struct{}{}:
				start()
				continue
			case <-timer.C:
			case <-l.wake:
			}
			again = true
		}
		timer.Stop()
	}
}

// takeDue takes what is due at now off the heap, and returns how long there is
// nothing to do.
func (l *lessor) takeDue(now time.Time) (expired, checkpoints []int64, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.due) > 0 && !l.due[0].due.After(now) && len(checkpoints) < checkpointBatch {
		le := l.due[0]
		if le.revoking || !now.Before(le.expiry) {
			heap.Pop(&l.due)
			le.expiring = true
			expired = append(expired, le.id)
			continue
		}
		checkpoints = append(checkpoints, le.id)
		le.persisted = min(le.persisted, le.remaining(now)) // tried once; the next one is due later
		l.schedule(le, now)
	}
	if len(l.due) == 0 {
		return expired, checkpoints, time.Hour
	}
	return expired, checkpoints, l.due[0].due.Sub(now)
}

// remaining returns the time that the lease has left at now, in whole seconds rounded
// up, since a row must not hold less than was promised: at least 1, which is the least
// that a row can hold, and at most the TTL.
func (le *lease) remaining(now time.Time) int64 {
	left := le.expiry.Sub(now)
	seconds := int64(left / time.Second)
	if left%time.Second > 0 {
		seconds++
	}
	return min(max(1, seconds), le.ttl)
}

// checkpoint writes the remaining time of leases to the table.
func (l *lessor) checkpoint(ctx context.Context, ids []int64) error {
	ctx, cancel := l.b.bound(ctx)
	defer cancel()
	return l.b.submit(ctx, &checkpointCommand{l: l.b, ids: ids})
}

// handOver turns renewals away, then writes the remaining time of all leases whose
// time in the table is longer. The order matters: a renewal after the last checkpoint
// would be lost with this leadership.
func (l *lessor) handOver(ctx context.Context) error {
	var ids []int64
	now := time.Now()
	l.mu.Lock()
	l.closed = true
	for id, le := range l.leases {
		if le.remaining(now) < le.persisted {
			ids = append(ids, id)
		}
	}
	l.mu.Unlock()
	for some := range slices.Chunk(ids, checkpointBatch) {
		if l.b.lost() != nil {
			return nil
		}
		if err := l.checkpoint(ctx, some); err != nil {
			return fmt.Errorf("writing lease checkpoints: %w", err)
		}
	}
	return nil
}

// toWrite returns the row that the step being evaluated writes for lease id: with
// its full TTL after a renewal, else with what remains at now. From then on renewals
// know that the table may hold no more than that. For the sequencer.
func (l *lessor) toWrite(id int64, renewed bool, now time.Time) (row coder.Lease, ok bool) {
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

// written records what the table holds of the remaining time of leases, after the
// commit. rows are all rows of leases in that commit: its last command for a lease
// counts. For the sequencer.
func (l *lessor) written(ids []int64, rows map[int64]*coder.Lease) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		le, row := l.leases[id], rows[id]
		if le == nil || row == nil {
			continue
		}
		le.persisted = cmp.Or(row.Remaining, row.TTL)
		if !le.expiring {
			l.schedule(le, now)
		}
	}
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
