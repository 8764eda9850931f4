package lease

import (
	"container/heap"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
)

// add adds a lease that the table holds. Its clock starts at now.
func (l *Lessor) add(row coder.Lease, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	le := newLease(row)
	l.leases[row.ID] = le
	l.startClock(le, now)
}

// startClock starts the clock of le at now, with the remaining time that the table holds. The
// caller must hold mu.
func (l *Lessor) startClock(le *lease, now time.Time) {
	le.expiry = now.Add(time.Duration(le.persisted) * time.Second)
	l.schedule(le, now)
}

// remove removes a lease that was revoked at revision rev.
func (l *Lessor) remove(id, rev int64) {
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
	le.mark()
	close(le.ended)
}

// schedule computes when le is due, and enqueues it. The caller must hold mu.
func (l *Lessor) schedule(le *lease, now time.Time) {
	le.due = le.expiry
	if le.revoking {
		le.due = now
	} else if le.persisted >= minCheckpoint {
		half := time.Duration(le.persisted) * time.Second / 2
		// A checkpoint is due when the remaining time has fallen to half of what the
		// table holds, and at least every checkpointInterval.
		at := le.expiry.Add(-time.Duration(le.persisted) * time.Second).Add(min(half, checkpointInterval))
		if at.Before(le.expiry) && at.After(now) {
			le.due = at
		}
	}
	l.enqueue(le)
}

// enqueue puts le in the heap by its due time. The caller must hold mu.
func (l *Lessor) enqueue(le *lease) {
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

// popDue returns the expired leases, which it takes off the heap, and the leases whose
// checkpoint is due at now, at most checkpointBatch. next is the time until the next one is due.
func (l *Lessor) popDue(now time.Time) (expired []*lease, checkpoints []int64, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.due) > 0 && !l.due[0].due.After(now) && len(checkpoints) < checkpointBatch {
		le := l.due[0]
		if le.over(now) {
			heap.Pop(&l.due)
			expired = append(expired, le)
			continue
		}
		checkpoints = append(checkpoints, le.id)
		// If this checkpoint fails, the next attempt is the next checkpoint.
		le.persisted = min(le.persisted, le.remaining(now))
		l.schedule(le, now)
	}
	if len(l.due) == 0 {
		return expired, checkpoints, time.Hour
	}
	return expired, checkpoints, l.due[0].due.Sub(now)
}

const (
	// checkpointInterval is the longest time between checkpoints, as in etcd.
	checkpointInterval = 5 * time.Minute
	// minCheckpoint is the remaining time, in seconds, below which a lease is no longer
	// checkpointed.
	minCheckpoint = 4
	// checkpointBatch is the maximum number of leases in one checkpoint. More are several
	// commits, so that other writes need not wait for all of them.
	checkpointBatch = 1000
)
