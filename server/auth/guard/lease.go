package guard

import (
	"context"

	etcdauth "go.etcd.io/etcd/server/v3/auth"

	"github.com/sqlbrain/sqlbrain/server/auth"
)

// The rules for leases that etcd checks outside the pipeline.

// LeaseRenew permits keeping the lease alive, which requires permission to write all its
// keys.
func (g *Guard) LeaseRenew(ctx context.Context, id int64) (auth.Permit, error) {
	return g.leaseKeys(ctx, func(see func([]byte) error) error { return g.cfg.Attachments.EachKey(ctx, id, see) },
		func(v *view, ai *etcdauth.AuthInfo, key []byte) error { return v.IsPutPermitted(ai, key) })
}

// LeaseListed returns nil if the caller may read keys of a lease, which are about to be listed. What was attached when
// the call began must not be judged in their place.
func (g *Guard) LeaseListed(ctx context.Context, keys [][]byte) error {
	_, err := g.leaseKeys(ctx, func(see func([]byte) error) error {
		for _, key := range keys {
			if err := see(key); err != nil {
				return err
			}
		}
		return nil
	}, func(v *view, ai *etcdauth.AuthInfo, key []byte) error { return v.IsRangePermitted(ai, key, nil) })
	return err
}

// Leases permits listing all leases, which requires permission to read all their keys.
func (g *Guard) Leases(ctx context.Context) (auth.Permit, error) {
	return g.leaseKeys(ctx, func(see func([]byte) error) error {
		return g.cfg.Attachments.EachAttachment(ctx, see)
	}, func(v *view, ai *etcdauth.AuthInfo, key []byte) error { return v.IsRangePermitted(ai, key, nil) })
}

// leaseKeys permits the request if permitted returns nil for each key, or the caller is
// root. It decides before the request.
func (g *Guard) leaseKeys(ctx context.Context, each func(see func(key []byte) error) error,
	permitted func(*view, *etcdauth.AuthInfo, []byte) error) (auth.Permit, error) {
	return preAuthorized(g.authorize(ctx, func(v *view) error {
		ai, err := g.authenticated(ctx, v)
		if err != nil || ai == nil || v.IsAdminPermitted(ai) == nil {
			return err
		}
		return each(func(key []byte) error { return permitted(v, ai, key) })
	}))
}
