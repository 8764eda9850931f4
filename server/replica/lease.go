package replica

import (
	"context"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// grantOverhead is how many bytes a grant counts against the quota, as in etcd.
const grantOverhead = 64

// LeaseGrant grants a lease, see lease.Lessor.Grant. Errors: those of Grant,
// mvcc.ErrLeaseTTLTooLarge, those of quota.
func (b *Replica) LeaseGrant(ctx context.Context, as auth.Permit, id, ttl int64) (lease.Status, error) {
	l, err := b.lead()
	if err != nil {
		return lease.Status{}, err
	}
	if err := b.alarms.CheckWrite(true); err != nil {
		return lease.Status{}, err
	}
	if ttl > lease.MaxTTL {
		return lease.Status{}, mvcc.ErrLeaseTTLTooLarge
	}
	if err := b.space.Check(grantOverhead); err != nil {
		return lease.Status{}, err
	}
	return l.lessor.Grant(ctx, as, id, ttl)
}

// LeaseRevoke ends a lease and deletes its keys, see lease.Lessor.Revoke.
func (b *Replica) LeaseRevoke(ctx context.Context, as auth.Permit, id int64) (int64, error) {
	l, err := b.lead()
	if err != nil {
		return 0, err
	}
	if err := b.alarms.CheckWrite(false); err != nil {
		return 0, err
	}
	return l.lessor.Revoke(ctx, as, id)
}

// LeaseKeepAlive renews a lease, see lease.Lessor.KeepAlive.
func (b *Replica) LeaseKeepAlive(ctx context.Context, as auth.Permit, id int64) (int64, error) {
	l, err := b.lead()
	if err != nil {
		return 0, err
	}
	return l.lessor.KeepAlive(ctx, as, id)
}

// LeaseTimeToLive returns the times and the keys of a lease, see lease.Lessor.TimeToLive.
func (b *Replica) LeaseTimeToLive(ctx context.Context, as auth.Permit, id int64, keys bool) (lease.Status, error) {
	l, err := b.lead()
	if err != nil {
		return lease.Status{}, err
	}
	return l.lessor.TimeToLive(ctx, as, id, keys)
}

// Leases returns the ids of all leases, see lease.Lessor.IDs.
func (b *Replica) Leases(ctx context.Context, as auth.Permit) ([]int64, error) {
	l, err := b.lead()
	if err != nil {
		return nil, err
	}
	return l.lessor.IDs(ctx, as)
}
