package replica

import (
	"context"
	"fmt"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
)

// LoadAuth makes sure that this node knows the users and roles of a version that the leader
// has reported. Later commits must not be shown before.
func (b *Replica) LoadAuth(ctx context.Context, version int64) error {
	if version <= b.AuthRows().Version {
		return nil
	}
	rows, err := b.authLoads.Get(ctx)
	if err == nil && rows.Version < version {
		err = fmt.Errorf("users and roles are at version %d in the table, the leader reported %d", rows.Version, version)
	}
	return err
}

// AuthRows returns the users and roles that this node knows: the newest on the leader, and
// elsewhere those of the last load.
func (b *Replica) AuthRows() *auth.Rows { return b.users.Rows() }

// RefreshAuth returns the newest users and roles: those in the table, on a follower. Errors:
// ErrNotServing, the database's.
func (b *Replica) RefreshAuth(ctx context.Context) (*auth.Rows, error) {
	if err := b.Stopped(); err != nil {
		return nil, err
	}
	if l := b.leading.Load(); l != nil && l.lease.Valid() {
		return b.AuthRows(), nil
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	rows, err := b.authLoads.Get(ctx)
	return rows, mvcc.PublicError(ctx, err)
}

// LeaderAuth returns the newest users and roles, and the store's revision, if this
// node leads. Errors: ErrNotLeader, ErrNotServing, the database's.
func (b *Replica) LeaderAuth(ctx context.Context) (*auth.Rows, int64, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	l, err := b.lead()
	if err != nil {
		return nil, 0, err
	}
	if err := l.VerifyLeader(ctx); err != nil {
		return nil, 0, mvcc.PublicError(ctx, err)
	}
	return b.AuthRows(), b.Revision(), nil
}

// SyncAuth returns users and roles that include every change acknowledged before the call.
// Errors: those of linearizable reads.
func (b *Replica) SyncAuth(ctx context.Context) (*auth.Rows, error) {
	if _, err := b.ReadRevision(ctx, auth.System, true); err != nil {
		return nil, err
	}
	return b.AuthRows(), nil
}

// ChangeAuth changes users and roles in the pipeline, ordered with all writes, and
// returns the store's revision, which does not change. change is called on the
// sequencer with the current rows, and returns nil for no change. It may be
// called again if its change was not committed. Errors: change's; ErrNotLeader and the like.
func (b *Replica) ChangeAuth(ctx context.Context, as auth.Permit,
	change func(*auth.Rows) (*auth.Change, error)) (revision int64, err error) {
	at := int64(0)
	if err := b.submit(ctx, as, func(tx *write.Tx) error {
		at = tx.Revision()
		return auth.Apply(tx, change)
	}); err != nil {
		return 0, err
	}
	return at, nil
}

// IssueToken makes a token in etcd's form, prefix.index, where the index is the
// number of a commit, and makes it known to all nodes. describe is called on the
// sequencer and returns the row of the token. IssueToken also returns the store's
// revision. Errors: describe's; ErrNotLeader and the like.
func (b *Replica) IssueToken(ctx context.Context, as auth.Permit, prefix string,
	describe func(*auth.Rows) (coder.Token, error)) (token string, revision int64, err error) {
	l, err := b.lead()
	if err != nil {
		return "", 0, err
	}
	issued, at := "", int64(0)
	if err := l.submit(ctx, as, func(tx *write.Tx) (err error) {
		at = tx.Revision()
		issued, err = l.tokens.Issue(tx, prefix, describe)
		return err
	}); err != nil {
		return "", 0, err
	}
	return issued, at, nil
}

// LookupToken returns the row of a token; found is false if the table does not have it.
func (b *Replica) LookupToken(ctx context.Context, h coder.TokenHash) (row coder.Token, found bool, err error) {
	if err := b.Stopped(); err != nil {
		return row, false, err
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	row, found, err = auth.LookupToken(ctx, b.store, h)
	return row, found, mvcc.PublicError(ctx, err)
}

// sweepTokens removes the rows of expired tokens.
func (l *leader) sweepTokens(ctx context.Context) {
	l.tokens.Sweep(ctx, func(ctx context.Context, remove func(auth.Tx)) error {
		err := l.submit(ctx, auth.System, func(tx *write.Tx) error { remove(tx); return nil })
		if err != nil && ctx.Err() == nil && l.Lost() == nil {
			l.b.log.Warn("removing expired tokens failed, trying again", "error", err)
		}
		return err
	})
}
