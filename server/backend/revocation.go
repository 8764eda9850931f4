package backend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// A lease is revoked in one revision, as in etcd, if it holds at most
// RevocationKeys keys. One with more is revoked piece by piece: the first piece marks
// the lease's row, from when on the lease takes no keys and no renewals, and each
// piece deletes some keys, a revision of its own, until the last one removes the row.
// A new leader finds the mark and goes on. Pieces are sized so that other writes do not
// wait long for their commit.

const (
	// RevocationKeys is the most keys that a revocation deletes in one revision. The commit
	// of so many takes about 50 ms on SQLite and MariaDB, and 150 ms on MySQL 9.7, whose
	// time grows faster than the keys.
	RevocationKeys = 2000
	// minPieceKeys is the fewest keys that a piece is made of, however slow the database.
	minPieceKeys = 100
	// pieceTime is how long a piece is to hold up other writes.
	pieceTime = 60 * time.Millisecond
	// smallLease is how many keys a lease may hold to be revoked together with others;
	// of leases with more only one at a time is on its way through the pipeline.
	smallLease = 100
	// revocationRoom is how many keys of expired and revoked leases may be on their way
	// at a time, so that a write has no more of them ahead of it. A lease without
	// keys counts as one.
	revocationRoom = RevocationKeys
)

// pieceSize is the size of the next piece of a revocation.
type pieceSize struct{ keys atomic.Int64 }

func (p *pieceSize) get() int {
	if n := p.keys.Load(); n > 0 {
		return int(n)
	}
	return RevocationKeys / 2
}

// learn adapts the size to what a piece of n keys took. It halves quickly, and grows
// only after pieces of full size.
func (p *pieceSize) learn(n int, took time.Duration) {
	size := p.get()
	switch {
	case took > pieceTime*3/2:
		size = max(min(size, n)/2, minPieceKeys)
	case took < pieceTime*2/3 && n >= size:
		size = min(size*5/4, RevocationKeys)
	}
	p.keys.Store(int64(size))
}

// revokeCommand deletes keys of a lease, and if it has no others, the lease.
type revokeCommand struct {
	l    *leader
	id   int64
	keys *ahead // nil if the lease is being revoked already

	more     bool  // the lease is still there, marked as being revoked
	revision int64 // the store's when the lease was gone, or the piece was
}

func (c *revokeCommand) touches() (keys, fresh [][]byte) { return nil, nil }
func (c *revokeCommand) size() int                       { return 0 }
func (c *revokeCommand) prepared() *ahead                { return c.keys }

func (c *revokeCommand) evaluate(_ context.Context, st *stage) error {
	row, ok := st.leaseRow(c.id)
	if !ok {
		return ErrLeaseNotFound
	}
	if c.keys == nil { // the caller wants to know whether it may
		c.more = true
		return nil
	}
	c.more = c.keys.lease.more
	for _, rec := range st.attached(c.keys.lease) {
		st.delete(rec, false)
	}
	c.revision = st.revision()
	switch {
	case !c.more:
		st.setLease(c.id, nil)
		st.committed(func() { c.l.lessor.remove(c.id, c.revision) })
	case !row.Revoking:
		row.Revoking = true
		st.setLease(c.id, &row)
		st.committed(func() { c.l.lessor.markRevoking(c.id) })
	}
	return nil
}

// revokePiece runs one piece of the revocation of lease id: all of it, if the lease
// holds no more keys than one revision may delete. If its row is marked, the piece
// begins after the key after. It returns the last key of the piece. It waits for its
// turn until ctx ends, and then for no longer than a request may take.
func (l *leader) revokePiece(ctx context.Context, id int64, marked bool, after []byte) (c *revokeCommand, last []byte, err error) {
	c = &revokeCommand{l: l, id: id}
	room := int64(revocationRoom)
	bounded, cancel := l.bound(ctx)
	c.keys, err = l.prepareLease(bounded, id, after, smallLease)
	cancel()
	if err != nil {
		return nil, nil, err
	}
	if c.keys.lease.more {
		l.settle(c.keys)
	} else {
		room = int64(max(c.keys.keys, 1))
	}
	if err := l.revocations.Acquire(ctx, room); err != nil {
		l.settle(c.keys)
		return nil, nil, err
	}
	defer l.revocations.Release(room)
	ctx, cancel = l.bound(ctx)
	defer cancel()
	if c.keys.lease.more {
		if c.keys, err = l.prepareLease(ctx, id, after, RevocationKeys); err != nil {
			return nil, nil, err
		}
		if c.keys.lease.more || marked {
			c.keys.cut(l.pieceSize.get())
		}
	}
	defer l.settle(c.keys)
	steps := StepsOf(ctx)
	if steps == nil {
		ctx, steps = WithSteps(ctx)
	}
	before, n := *steps, c.keys.keys
	if err := l.submit(ctx, c); err != nil {
		return nil, nil, err
	}
	if c.more {
		l.pieceSize.learn(n, steps.Evaluate+steps.Commit-before.Evaluate-before.Commit)
	}
	if n > 0 {
		last = c.keys.lease.keys[n-1]
	}
	return c, last, nil
}

// markRevoking records that the row of lease id is marked: it is due until it is gone.
func (l *lessor) markRevoking(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if le := l.leases[id]; le != nil {
		if le.revoking = true; !le.expiring {
			l.schedule(le, time.Now())
		}
	}
}

// ending returns lease id, nil if there is none, and whether its row is marked.
func (l *lessor) ending(id int64) (le *lease, revoking bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if le = l.leases[id]; le == nil {
		return nil, false
	}
	return le, le.revoking
}

// expire runs one piece of the revocation of a lease whose time is up, or whose row is
// marked. What is left, or failed, is due again after the leases that are due by
// then, so that they all get their turn.
func (l *lessor) expire(ctx context.Context, id int64) {
	l.mu.Lock()
	le := l.leases[id]
	if le == nil {
		l.mu.Unlock()
		return
	}
	marked, after := le.revoking, le.after
	l.mu.Unlock()

	c, last, err := l.b.revokePiece(ctx, id, marked, after)
	switch {
	case err == nil && !marked:
		l.b.metrics.leasesExpired.Inc()
	case errors.Is(err, ErrLeaseNotFound), errors.Is(err, ErrNotServing), errors.Is(err, ErrNotLeader), errors.Is(err, ErrLeaderLost), ctx.Err() != nil:
		return
	}
	if err == nil && !c.more {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	le.due = time.Now()
	if err == nil {
		le.after, le.failures = last, 0
	} else {
		le.failures++
		pause := revocationPause(le.failures)
		le.due = le.due.Add(pause)
		l.b.metrics.revocationErrors.Inc()
		l.b.log.Warn("revoking an expired lease failed, trying again",
			"lease", fmt.Sprintf("%016x", uint64(id)), "attempt", le.failures, "pause", pause, "error", err)
	}
	if l.leases[id] == le {
		l.enqueue(le)
	}
}

const (
	minRevocationPause = 100 * time.Millisecond
	maxRevocationPause = 30 * time.Second
)

// revocationPause returns how long a lease waits after so many failed attempts to
// revoke it: twice as long each time, and a random part less, so that leases that
// failed together do not come back together.
func revocationPause(failures int) time.Duration {
	pause := min(minRevocationPause<<min(failures-1, 16), maxRevocationPause)
	return pause/2 + rand.N(pause/2)
}
