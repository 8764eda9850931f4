package lease

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
)

const (
	// MaxTTL is etcd's limit, in seconds.
	MaxTTL = 9_000_000_000
	// grantOverhead is how many bytes a grant counts against the quota, as in etcd.
	grantOverhead = 64
)

// Status is the answer of Grant and TimeToLive. Times are in seconds.
type Status struct {
	ID         int64
	GrantedTTL int64
	TTL        int64    // remaining; -1 if the lease does not exist
	Keys       [][]byte // in key order; TimeToLive only
	Revision   int64    // of the store when the lease was granted; Grant only
}

// Grant grants a lease of ttl seconds, or of MinTTL if that is more. If id is 0, the lessor
// chooses one. Errors: mvcc.ErrLeaseExists, mvcc.ErrLeaseTTLTooLarge, those of package quota and
// of write.Pipeline.Submit.
func (l *Lessor) Grant(ctx context.Context, as auth.Permit, id, ttl int64) (Status, error) {
	if err := l.cfg.Alarms.CheckWrite(true); err != nil {
		return Status{}, err
	}
	if ttl > MaxTTL {
		return Status{}, mvcc.ErrLeaseTTLTooLarge
	}
	if err := l.cfg.Space.Check(grantOverhead); err != nil {
		return Status{}, err
	}
	ctx, cancel := l.bound(ctx)
	defer cancel()
	c := &grantCommand{l: l, row: coder.Lease{ID: id, TTL: max(ttl, l.cfg.MinTTL)}}
	if err := l.pipeline.Submit(ctx, as, c); err != nil {
		return Status{}, err
	}
	l.cfg.Metrics.granted.Inc()
	return Status{ID: c.row.ID, GrantedTTL: c.row.TTL, TTL: c.row.TTL, Revision: c.revision}, nil
}

// Revoke ends a lease and deletes its keys in key order: in one revision if it holds at most
// revocationKeys, else in several. It returns when all keys are deleted, which may take
// longer than RequestTimeout. If ctx ends earlier, the revocation continues. Revoke returns
// the revision of the last deletion, or the current one if the lease had no keys. Errors:
// mvcc.ErrLeaseNotFound, those of quota.Space.CheckDelete and of write.Pipeline.Submit.
func (l *Lessor) Revoke(ctx context.Context, as auth.Permit, id int64) (int64, error) {
	bounded, cancel := l.bound(ctx)
	defer cancel()
	le, revoking := l.get(id)
	c := &revokeCommand{l: l, id: id}
	var err error
	if revoking {
		err = l.pipeline.Submit(bounded, as, c) // only checks the permit
	} else {
		err = l.revokeChunk(bounded, as, c)
	}
	if err != nil {
		return 0, mvcc.PublicError(bounded, err)
	}
	l.cfg.Metrics.revoked.Inc()
	if !c.more || le == nil {
		return c.revision, nil
	}
	select {
	case <-le.ended:
		return le.last, mvcc.PublicError(ctx, l.cfg.Leader.Await(ctx, le.last))
	case <-ctx.Done():
		return 0, mvcc.PublicError(ctx, ctx.Err())
	case <-l.pipeline.Done():
		return 0, mvcc.ErrLeaderLost
	}
}

// KeepAlive restarts the time of a lease and returns its TTL in seconds. A lease whose time is
// up is not renewed: the call waits until its revocation has begun. It does not wait for all chunks, because
// the renewals of the client's other leases come after it in the same stream. Errors: mvcc.ErrLeaseNotFound, those of
// as, of Leader and of write.Pipeline.Submit.
func (l *Lessor) KeepAlive(ctx context.Context, as auth.Permit, id int64) (int64, error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	if err := as.Check(ctx, l.cfg.View); err != nil {
		return 0, err
	}
	le, persist, refused := l.renew(id)
	// The renewal comes first. If another leader exists, VerifyLeader fails, or that leader starts
	// its clocks after the renewal.
	if err := l.cfg.Leader.VerifyLeader(ctx); err != nil {
		return 0, mvcc.PublicError(ctx, err)
	}
	if refused != nil && le != nil {
		select {
		case <-le.begun:
		case <-ctx.Done():
			return 0, mvcc.PublicError(ctx, ctx.Err())
		case <-l.pipeline.Done():
			return 0, l.cfg.Leader.ErrNotLeader()
		}
	}
	if refused != nil {
		return 0, refused
	}
	if persist {
		if err := l.pipeline.Submit(ctx, as, &checkpointCommand{l: l, ids: []int64{id}, renewed: true}); err != nil {
			return 0, err
		}
	}
	l.cfg.Metrics.renewed.Inc()
	return le.ttl, nil
}

// renew restarts the time of lease id. If persist is set, the table may hold a shorter time:
// the renewal must not be acknowledged before a commit has written the full TTL. Errors:
// mvcc.ErrLeaseNotFound, together with the lease if its time is up or its revocation has begun;
// that of Leader.ErrNotLeader after HandOver.
func (l *Lessor) renew(id int64) (le *lease, persist bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false, l.cfg.Leader.ErrNotLeader()
	}
	now := l.cfg.Clock()
	le = l.leases[id]
	if le == nil || le.over(now) {
		return le, false, mvcc.ErrLeaseNotFound
	}
	le.expiry = now.Add(time.Duration(le.ttl) * time.Second)
	l.schedule(le, now)
	return le, le.persisted < le.ttl, nil
}

// TimeToLive returns the times of a lease and, if keys is set, its keys. A lease that does not
// exist has TTL -1 and causes no error. Errors: those of as, of Leader and of the database.
func (l *Lessor) TimeToLive(ctx context.Context, as auth.Permit, id int64, keys bool) (Status, error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	if err := as.Check(ctx, l.cfg.View); err != nil {
		return Status{}, err
	}
	st := l.status(id)
	if err := l.cfg.Leader.VerifyLeader(ctx); err != nil {
		return Status{}, mvcc.PublicError(ctx, err)
	}
	if !keys || st.GrantedTTL == 0 {
		return st, nil
	}
	lo, hi := coder.AttachmentBounds(id)
	for key, err := range write.Attached(ctx, l.cfg.Store, lo, hi, 0) {
		if err != nil {
			return st, mvcc.PublicError(ctx, err)
		}
		st.Keys = append(st.Keys, key)
	}
	return st, nil
}

// status returns the times of lease id.
func (l *Lessor) status(id int64) Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	le := l.leases[id]
	switch {
	case le == nil:
		return Status{ID: id, TTL: -1}
	case le.revoking:
		return Status{ID: id, GrantedTTL: le.ttl}
	}
	return Status{ID: id, GrantedTTL: le.ttl, TTL: int64(le.expiry.Sub(l.cfg.Clock()).Seconds())}
}

// IDs returns the ids of all leases, ordered by the time at which they end. Errors: those of
// as and of Leader.
func (l *Lessor) IDs(ctx context.Context, as auth.Permit) ([]int64, error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	if err := as.Check(ctx, l.cfg.View); err != nil {
		return nil, err
	}
	ids := l.ids()
	return ids, mvcc.PublicError(ctx, l.cfg.Leader.VerifyLeader(ctx))
}

// ids returns the ids of all leases, ordered by the time at which they end.
func (l *Lessor) ids() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.SortedFunc(maps.Values(l.leases), func(a, b *lease) int {
		return cmp.Or(a.expiry.Compare(b.expiry), cmp.Compare(a.id, b.id))
	})
	ids := make([]int64, len(all))
	for i, le := range all {
		ids[i] = le.id
	}
	return ids
}

// grantCommand grants a lease.
type grantCommand struct {
	l        *Lessor
	row      coder.Lease // Evaluate sets the id if it is 0
	revision int64       // of the store when the lease was granted; set by Evaluate
}

// Evaluate implements write.Command.
func (c *grantCommand) Evaluate(_ context.Context, tx *write.Tx) (err error) {
	c.row, err = c.l.grant(tx, c.row)
	c.revision = tx.Revision()
	return err
}
