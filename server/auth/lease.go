package auth

import (
	"context"

	etcdauth "go.etcd.io/etcd/server/v3/auth"
)

// The rules of leases that etcd has outside the pipeline.

// LeaseRenew returns nil if the caller may keep the lease alive: whoever may write
// all its keys.
func (g *Guard) LeaseRenew(ctx context.Context, id int64) error {
	return g.leaseKeys(ctx, func(see func([]byte) error) error { return g.node.EachLeaseKey(ctx, id, see) },
		func(v *view, ai *etcdauth.AuthInfo, key []byte) error { return v.IsPutPermitted(ai, key) })
}

// LeaseTimeToLive returns nil if the caller may see the lease, and its keys if asked
// for: whoever may read them.
func (g *Guard) LeaseTimeToLive(ctx context.Context, id int64, keys bool) error {
	if !keys {
		return g.Somebody(ctx)
	}
	return g.leaseKeys(ctx, func(see func([]byte) error) error { return g.node.EachLeaseKey(ctx, id, see) },
		func(v *view, ai *etcdauth.AuthInfo, key []byte) error { return v.IsRangePermitted(ai, key, nil) })
}

// Leases returns nil if the caller may see that all leases exist: whoever may read all
// their keys.
func (g *Guard) Leases(ctx context.Context) error {
	return g.leaseKeys(ctx, func(see func([]byte) error) error {
		return g.node.AnyLeasesKeys(ctx, func(_ int64, key []byte) error { return see(key) })
	}, func(v *view, ai *etcdauth.AuthInfo, key []byte) error { return v.IsRangePermitted(ai, key, nil) })
}

// leaseKeys returns nil if permitted is, of the caller, for each key, or it is root.
func (g *Guard) leaseKeys(ctx context.Context, each func(see func(key []byte) error) error, permitted func(*view, *etcdauth.AuthInfo, []byte) error) error {
	return g.judge(ctx, func(v *view) error {
		ai, err := g.somebody(ctx, v)
		if err != nil || ai == nil || v.IsAdminPermitted(ai) == nil {
			return err
		}
		return each(func(key []byte) error { return permitted(v, ai, key) })
	})
}
