package replica

import (
	"context"
	"fmt"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/quota"
)

// ListAlarms returns the raised alarms that the leader knows. Errors: ErrNotLeader,
// ErrNotServing, the database's.
func (b *Replica) ListAlarms(ctx context.Context, as auth.Permit) ([]quota.Alarm, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return nil, err
	}
	if err := as.Check(ctx, b); err != nil {
		return nil, err
	}
	all := b.Alarms()
	return all, mvcc.PublicError(ctx, l.VerifyLeader(ctx))
}

// Alarms returns the raised alarms that this node knows. A follower learns of changes within
// a second, except of those that are not in the table, see quota.Space.
func (b *Replica) Alarms() []quota.Alarm { return b.alarms.All() }

// RaiseAlarm raises a and returns it.
func (b *Replica) RaiseAlarm(ctx context.Context, as auth.Permit, a quota.Alarm) ([]quota.Alarm, error) {
	if err := b.setAlarm(ctx, as, a, true); err != nil {
		return nil, err
	}
	return []quota.Alarm{a}, nil
}

// DisarmAlarm disarms a and returns it, or returns nothing if it was not raised.
func (b *Replica) DisarmAlarm(ctx context.Context, as auth.Permit, a quota.Alarm) ([]quota.Alarm, error) {
	l, err := b.lead()
	if err != nil {
		return nil, err
	}
	if err := as.Check(ctx, b); err != nil {
		return nil, err
	}
	if !b.alarms.Raised(a) {
		return nil, l.VerifyLeader(ctx)
	}
	if err := b.setAlarm(ctx, as, a, false); err != nil {
		return nil, err
	}
	return []quota.Alarm{a}, nil
}

func (b *Replica) setAlarm(ctx context.Context, as auth.Permit, a quota.Alarm, raised bool) error {
	return b.submit(ctx, as, func(tx *write.Tx) error {
		b.alarms.Change(tx, a, raised)
		tx.OnCommit(func() {
			b.log.Warn("alarm changed", "type", a.Type, "member_id", fmt.Sprintf("%x", a.MemberID), "raised", raised)
		})
		return nil
	})
}

// watchQuota raises the NOSPACE alarm when a request would have reached the quota.
func (l *leader) watchQuota(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.b.space.Full():
			if _, err := l.b.RaiseAlarm(ctx, auth.System,
				quota.Alarm{MemberID: l.b.MemberID(), Type: quota.AlarmNoSpace}); err != nil && ctx.Err() == nil {
				l.b.log.Warn("raising the NOSPACE alarm failed", "error", err)
			}
		}
	}
}

// Defragment lets the engine release unused space.
func (b *Replica) Defragment(ctx context.Context, as auth.Permit) error {
	if err := as.Check(ctx, b); err != nil {
		return err
	}
	return b.space.Defragment(ctx)
}
