package lease

import (
	"cmp"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
)

// lease is one lease and its clock. Lessor.mu guards it. id, ttl and policy never change.
type lease struct {
	id, ttl int64 // ttl in seconds
	policy  bool
	expiry  time.Time // no longer changes once it has passed
	// persisted is a lower bound, in seconds, of the remaining time that the table holds. It
	// holds for every outcome of the commits in progress.
	persisted int64
	due       time.Time     // of the next checkpoint or chunk of its revocation
	position  int           // in the heap; -1 while Run revokes a chunk of it
	revoking  bool          // the row is marked: chunks of it are being revoked
	after     []byte        // the last key of its last revoked chunk
	failures  int           // failed attempts to revoke it since the last success
	begun     chan struct{} // closed once its row is marked, or it is revoked
	ended     chan struct{} // closed once it is revoked
	last      int64         // the revision at which it was revoked, written before ended is closed
}

// newLease returns the lease of a row. Its clock stands still.
func newLease(row coder.Lease) *lease {
	le := &lease{
		id: row.ID, ttl: row.TTL, policy: row.Policy, persisted: cmp.Or(row.Remaining, row.TTL),
		position: -1, begun: make(chan struct{}), ended: make(chan struct{}),
	}
	if row.Revoking {
		le.mark()
	}
	return le
}

// mark records that the row of the lease is marked, or gone.
func (le *lease) mark() {
	if !le.revoking {
		le.revoking = true
		close(le.begun)
	}
}

// over reports whether the lease can no longer be renewed, because its time is up or its
// revocation has begun. Once true it stays true.
func (le *lease) over(now time.Time) bool { return le.revoking || !now.Before(le.expiry) }

// remaining returns the seconds that the lease has left at now, as a row can hold them: from
// 1 to the TTL. It rounds up, because a row must not hold less than was promised.
func (le *lease) remaining(now time.Time) int64 {
	left := le.expiry.Sub(now)
	seconds := int64(left / time.Second)
	if left%time.Second > 0 {
		seconds++
	}
	return min(max(1, seconds), le.ttl)
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
