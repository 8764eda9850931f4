package read

import (
	"context"
	"time"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
)

// RevisionAt returns the last revision that was committed at or before a time. Errors: those of
// history.Log.RevisionAt and of Now.
func (r *Reader) RevisionAt(ctx context.Context, as auth.Permit, at time.Time) (revision int64, err error) {
	ctx, cancel := r.timeout.Bound(ctx)
	defer cancel()
	now, err := r.Now(ctx, as, true)
	if err == nil {
		revision, err = r.log().RevisionAt(ctx, at, now.rev)
	}
	return revision, mvcc.PublicError(ctx, err)
}

// CommitOf returns the commit that made a revision, see history.Log.CommitOf.
func (r *Reader) CommitOf(ctx context.Context, as auth.Permit, revision int64) (commit history.Commit, err error) {
	ctx, cancel := r.timeout.Bound(ctx)
	defer cancel()
	if _, err = r.Now(ctx, as, false); err == nil {
		commit, err = r.log().CommitOf(ctx, revision)
	}
	return commit, mvcc.PublicError(ctx, err)
}

func (r *Reader) log() *history.Log { return history.New(r.store, r.node.Mark) }
