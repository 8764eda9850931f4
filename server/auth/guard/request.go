package guard

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"

	"github.com/sqlbrain/sqlbrain/server/auth"
)

// rule authorizes a request of ai; lease shows it the keys of a lease.
type rule func(as etcdauth.AuthStore, ai *etcdauth.AuthInfo, lease leaseKeys) error

// leaseKeys returns the error of see for a key that is attached to a lease.
type leaseKeys func(id int64, see func(key []byte) error) error

func leaseKeysOf(ctx context.Context, at auth.View, ai *etcdauth.AuthInfo) leaseKeys {
	return func(id int64, see func(key []byte) error) error { return at.MayWriteLease(ctx, id, ai.Username, see) }
}

// Read is a read that is being executed.
type Read struct {
	guard    *Guard
	revision uint64 // of users and roles when it was permitted, 0: not checked
}

// Done returns err, that of the read, or another one if users or roles have changed since the
// read was permitted. As in etcd the caller must then discard the answer.
func (r *Read) Done(err error) error {
	if r.revision != 0 && r.revision != r.guard.Revision() {
		return etcdauth.ErrAuthOldRevision
	}
	return err
}

// reading returns the permit of a read that the rule authorizes.
func (g *Guard) reading(authorized rule) (auth.Permit, *Read) {
	r := &Read{guard: g}
	return auth.NewPermit(func(ctx context.Context, at auth.View) error {
		r.revision = 0
		return g.authorize(ctx, func(v *view) error {
			ai, err := g.callerOrAnonymous(ctx, v)
			if err != nil || ai == nil {
				return err
			}
			if err := authorized(v, ai, leaseKeysOf(ctx, at, ai)); err != nil {
				return err
			}
			r.revision = ai.Revision
			return nil
		})
	}), r
}

// Caller is who makes a request that writes: the header of etcd's proposals.
type Caller struct {
	Name     string
	Revision uint64
}

// writing returns the permit of a write that the rule authorizes, and its caller.
func (g *Guard) writing(ctx context.Context, authorized rule) (auth.Permit, Caller, error) {
	ai, _, err := g.caller(ctx, g.info)
	if err != nil {
		return auth.Permit{}, Caller{}, err
	}
	known := ai
	if ai == nil {
		ai = &etcdauth.AuthInfo{}
	}
	permit := auth.NewPermit(func(ctx context.Context, at auth.View) error {
		v := g.view(at.AuthRows())
		if !v.rows.Enabled {
			return nil
		}
		if v.err != nil {
			return v.err
		}
		if err := v.checkRevision(known); err != nil {
			return err
		}
		return authorized(v, ai, leaseKeysOf(ctx, at, ai))
	})
	return permit, Caller{ai.Username, ai.Revision}, nil
}

// Range returns the permit of a range read.
func (g *Guard) Range(key, end []byte) (auth.Permit, *Read) {
	return g.reading(func(as etcdauth.AuthStore, ai *etcdauth.AuthInfo, _ leaseKeys) error {
		return as.IsRangePermitted(ai, key, end)
	})
}

// Put returns the permit of a put.
func (g *Guard) Put(ctx context.Context, r *pb.PutRequest) (auth.Permit, Caller, error) {
	return g.writing(ctx, func(as etcdauth.AuthStore, ai *etcdauth.AuthInfo, keys leaseKeys) error {
		return authorizePut(as, ai, keys, r)
	})
}

// DeleteRange returns the permit of a delete.
func (g *Guard) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (auth.Permit, Caller, error) {
	return g.writing(ctx, func(as etcdauth.AuthStore, ai *etcdauth.AuthInfo, _ leaseKeys) error {
		return authorizeDelete(as, ai, r)
	})
}

// ReadTxn returns the permit of a transaction that only reads.
func (g *Guard) ReadTxn(r *pb.TxnRequest) (auth.Permit, *Read) {
	return g.reading(func(as etcdauth.AuthStore, ai *etcdauth.AuthInfo, keys leaseKeys) error {
		return authorizeTxn(as, ai, keys, r)
	})
}

// WriteTxn returns the permit of a transaction that writes.
func (g *Guard) WriteTxn(ctx context.Context, r *pb.TxnRequest) (auth.Permit, Caller, error) {
	return g.writing(ctx, func(as etcdauth.AuthStore, ai *etcdauth.AuthInfo, keys leaseKeys) error {
		return authorizeTxn(as, ai, keys, r)
	})
}

// LeaseRevoke returns the permit of the end of a lease, which deletes its keys.
func (g *Guard) LeaseRevoke(ctx context.Context, id int64) (auth.Permit, error) {
	if _, err := g.AnyUser(ctx); err != nil {
		return auth.Permit{}, err
	}
	permit, _, err := g.writing(ctx, func(as etcdauth.AuthStore, ai *etcdauth.AuthInfo, keys leaseKeys) error {
		return authorizeLease(as, ai, keys, id)
	})
	return permit, err
}

// Watch returns nil if the caller may watch the keys.
func (g *Guard) Watch(ctx context.Context, key, end []byte) error {
	return g.authorize(ctx, func(v *view) error {
		ai, err := g.callerOrAnonymous(ctx, v)
		if err != nil || ai == nil {
			return err
		}
		return v.IsRangePermitted(ai, key, end)
	})
}

// The rules of etcd's apply package, which are tied to etcd's lessor there.

func authorizePut(as etcdauth.AuthStore, ai *etcdauth.AuthInfo, keys leaseKeys, r *pb.PutRequest) error {
	if err := as.IsPutPermitted(ai, r.Key); err != nil {
		return err
	}
	// A user who may not write all keys of a lease must not keep the lease alive or attach
	// further keys to it.
	if err := authorizeLease(as, ai, keys, r.Lease); err != nil {
		return err
	}
	if r.PrevKv {
		return as.IsRangePermitted(ai, r.Key, nil)
	}
	return nil
}

func authorizeDelete(as etcdauth.AuthStore, ai *etcdauth.AuthInfo, r *pb.DeleteRangeRequest) error {
	if err := as.IsDeleteRangePermitted(ai, r.Key, r.RangeEnd); err != nil || !r.PrevKv {
		return err
	}
	return as.IsRangePermitted(ai, r.Key, r.RangeEnd)
}

func authorizeLease(as etcdauth.AuthStore, ai *etcdauth.AuthInfo, keys leaseKeys, id int64) error {
	if id == 0 || as.IsAdminPermitted(ai) == nil {
		return nil
	}
	return keys(id, func(key []byte) error { return as.IsPutPermitted(ai, key) })
}

func authorizeTxn(as etcdauth.AuthStore, ai *etcdauth.AuthInfo, keys leaseKeys, r *pb.TxnRequest) error {
	for _, c := range r.Compare {
		if err := as.IsRangePermitted(ai, c.Key, c.RangeEnd); err != nil {
			return err
		}
	}
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range branch {
			if err := authorizeOp(as, ai, keys, op); err != nil {
				return err
			}
		}
	}
	return nil
}

func authorizeOp(as etcdauth.AuthStore, ai *etcdauth.AuthInfo, keys leaseKeys, op *pb.RequestOp) error {
	if r := op.GetRequestRange(); r != nil {
		return as.IsRangePermitted(ai, r.Key, r.RangeEnd)
	}
	if r := op.GetRequestPut(); r != nil {
		return authorizePut(as, ai, keys, r)
	}
	if r := op.GetRequestDeleteRange(); r != nil {
		return authorizeDelete(as, ai, r)
	}
	if r := op.GetRequestTxn(); r != nil {
		return authorizeTxn(as, ai, keys, r)
	}
	return nil
}
