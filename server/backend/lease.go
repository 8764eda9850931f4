package backend

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
)

// MaxLeaseTTL is etcd's limit, in seconds.
const MaxLeaseTTL = 9_000_000_000

// LeaseGrant grants a lease of ttl seconds, raised to the minimum; id 0 lets the
// server choose. Errors: ErrLeaseTTLTooLarge, ErrLeaseExists, ErrNoSpace.
func (b *Backend) LeaseGrant(ctx context.Context, id, ttl int64) (LeaseStatus, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return LeaseStatus{}, err
	}
	if err := b.alarms.checkWrite(true); err != nil {
		return LeaseStatus{}, err
	}
	if ttl > MaxLeaseTTL {
		return LeaseStatus{}, ErrLeaseTTLTooLarge
	}
	if err := b.checkSpace(grantOverhead); err != nil {
		return LeaseStatus{}, err
	}
	c := &grantCommand{l: l, row: coder.Lease{ID: id, TTL: max(ttl, b.cfg.MinLeaseTTL)}}
	if err := l.submit(ctx, c); err != nil {
		return LeaseStatus{}, err
	}
	b.metrics.leasesGranted.Inc()
	return LeaseStatus{ID: c.row.ID, GrantedTTL: c.row.TTL, TTL: c.row.TTL, Revision: c.revision}, nil
}

// LeaseRevoke ends a lease and deletes its keys, in key order: in one revision if it
// holds at most RevocationKeys, else in several. It returns once all are gone, however
// long that takes; when ctx ends before, the revocation goes on without the caller. The
// result is the last revision, or, if there were no keys, the one the store was at.
// Errors: ErrLeaseNotFound.
func (b *Backend) LeaseRevoke(ctx context.Context, id int64) (int64, error) {
	bounded, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return 0, err
	}
	if err := b.alarms.checkWrite(false); err != nil {
		return 0, err
	}
	le, revoking := l.lessor.ending(id)
	c := &revokeCommand{l: l, id: id}
	if revoking {
		err = l.submit(bounded, c)
	} else {
		c, _, err = l.revokePiece(bounded, id, false, nil)
	}
	if err != nil {
		return 0, b.publicError(bounded, err)
	}
	b.metrics.leasesRevoked.Inc()
	if !c.more || le == nil {
		return c.revision, nil
	}
	select {
	case <-le.ended:
		return le.last, nil
	case <-ctx.Done():
		return 0, b.publicError(ctx, ctx.Err())
	case <-l.sequencerDone:
		return 0, ErrLeaderLost
	}
}

// LeaseKeepAlive starts a lease's time anew and returns its TTL in seconds. A
// lease whose time is up is not renewed: the call waits for its end. Errors:
// ErrLeaseNotFound.
func (b *Backend) LeaseKeepAlive(ctx context.Context, id int64) (int64, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return 0, err
	}
	ttl, persist, ended, refused := l.lessor.renew(id)
	// Another leader has other leases, and does not know of this renewal. It starts its
	// clocks after the last moment that can be confirmed here, so the renewal comes first.
	if err := l.confirm(ctx); err != nil {
		return 0, b.publicError(ctx, err)
	}
	if refused != nil {
		return 0, refused
	}
	if ended != nil {
		select {
		case <-ended:
			return 0, ErrLeaseNotFound
		case <-ctx.Done():
			return 0, b.publicError(ctx, ctx.Err())
		case <-l.sequencerDone:
			return 0, l.turnedAway()
		}
	}
	if persist {
		if err := l.submit(ctx, &checkpointCommand{l: l, ids: []int64{id}, renewed: true}); err != nil {
			return 0, err
		}
	}
	b.metrics.leasesRenewed.Inc()
	return ttl, nil
}

// LeaseTimeToLive returns a lease's times and, if asked for, its keys in key
// order. A lease that does not exist has TTL -1, which is no error.
func (b *Backend) LeaseTimeToLive(ctx context.Context, id int64, keys bool) (LeaseStatus, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return LeaseStatus{}, err
	}
	granted, remaining, ok := l.lessor.status(id)
	if err := l.confirm(ctx); err != nil {
		return LeaseStatus{}, b.publicError(ctx, err)
	}
	if !ok {
		return LeaseStatus{ID: id, TTL: -1}, nil
	}
	st := LeaseStatus{ID: id, GrantedTTL: granted, TTL: remaining}
	if !keys {
		return st, nil
	}
	st.Keys, err = b.attachedKeys(ctx, id)
	return st, b.publicError(ctx, err)
}

// Leases returns the ids of all leases, those that end first in front.
func (b *Backend) Leases(ctx context.Context) ([]int64, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return nil, err
	}
	ids := l.lessor.ids()
	return ids, b.publicError(ctx, l.confirm(ctx))
}

// leaseRow returns the row of lease id as the commands before have left it; false if
// there is no such lease.
func (st *stage) leaseRow(id int64) (coder.Lease, bool) {
	for _, leases := range []map[int64]*coder.Lease{st.ownLeases, st.leases} {
		if l, ok := leases[id]; ok && l != nil {
			return *l, true
		} else if ok {
			return coder.Lease{}, false
		}
	}
	return st.l.lessor.row(id)
}

// leaseExists reports whether there is a lease id, which may be on its way out.
func (st *stage) leaseExists(id int64) bool {
	_, ok := st.leaseRow(id)
	return ok
}

// leaseOpen reports whether a put of this stage may attach to lease id.
func (st *stage) leaseOpen(id int64) bool {
	l, ok := st.leaseRow(id)
	return ok && !l.Revoking
}

// setLease stages a lease row; nil removes it.
func (st *stage) setLease(id int64, l *coder.Lease) {
	if st.ownLeases == nil {
		st.ownLeases = make(map[int64]*coder.Lease)
	}
	st.ownLeases[id] = l
}

// grant stages a new lease, choosing an id if row has none.
func (st *stage) grant(row coder.Lease) (coder.Lease, error) {
	if row.ID == 0 {
		for row.ID == 0 || st.leaseExists(row.ID) {
			row.ID = rand.Int64() // not negative, as etcd's own ids
		}
	} else if st.leaseExists(row.ID) {
		return row, ErrLeaseExists
	}
	st.setLease(row.ID, &row)
	st.committed(func() { st.l.lessor.add(row, time.Now()) })
	return row, nil
}

type grantCommand struct {
	l        *leader
	row      coder.Lease
	revision int64 // the store's when the lease came to be
}

func (c *grantCommand) touches() (keys, fresh [][]byte) { return nil, nil }
func (c *grantCommand) size() int                       { return 0 }

func (c *grantCommand) evaluate(_ context.Context, st *stage) (err error) {
	c.row, err = st.grant(c.row)
	c.revision = st.revision()
	return err
}

// checkpointCommand writes the remaining time of leases to the table, as it is when
// the command is evaluated.
type checkpointCommand struct {
	l       *leader
	ids     []int64
	renewed bool // write the full TTL
}

func (c *checkpointCommand) touches() (keys, fresh [][]byte) { return nil, nil }
func (c *checkpointCommand) size() int                       { return 0 }

func (c *checkpointCommand) evaluate(_ context.Context, st *stage) error {
	now := time.Now()
	for _, id := range c.ids {
		if !st.leaseOpen(id) {
			continue // revoked in the meantime
		}
		if staged := st.leases[id]; staged != nil && (!c.renewed || staged.Remaining == 0) {
			continue // the same step writes as much already
		}
		if row, ok := c.l.lessor.toWrite(id, c.renewed, now); ok {
			st.setLease(id, &row)
		}
	}
	rows := st.leases // those of the whole batch, once all of it is evaluated
	st.committed(func() { c.l.lessor.written(c.ids, rows) })
	return nil
}
