package export

import (
	"cmp"
	"context"
	"errors"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// errReplaced: another history took the place of the one of which some rows were read.
var errReplaced = errors.New("the database was restored, or lost commits, while it was read: try again")

// OpenTable returns a snapshot of a table that this process does not serve. Servers may serve it and write
// to it. The table must not be in the middle of a restore. Versions fails if one begins, or a failover loses commits.
// Errors: sqlstore.ErrKeyNotFound if it was never served, the database's.
func OpenTable(ctx context.Context, store sqlstore.Store) (*Snapshot, error) {
	t := &table{store: store}
	s, err := New(store, t).OpenSnapshot(ctx, auth.System)
	if err != nil {
		return nil, err
	}
	s.verify = func(ctx context.Context) error {
		now, err := t.originOf(ctx, s.Revision)
		if err == nil && now != t.origin {
			err = errReplaced
		}
		return err
	}
	return s, nil
}

// HashTable returns the hash of HashKV up to a revision of a table that this process does not serve, as after a
// compaction at compacted. It reads the whole table. Errors: mvcc.ErrCompacted if more than that was compacted, also
// while it reads; the database's.
func HashTable(ctx context.Context, store sqlstore.Store, rev, compacted int64,
	marshal func(*coder.Record) ([]byte, error)) (uint32, error) {
	t := &table{store: store}
	hash, err := New(store, t).hashUpTo(ctx, rev, compacted, marshal)
	if mark, merr := t.Mark(ctx); merr != nil || mark > compacted {
		return 0, cmp.Or(merr, error(mvcc.ErrCompacted))
	}
	return hash, err
}

// table implements Node by reading the table.
type table struct {
	store sqlstore.Store
	// Of the last call of ReadRevision:
	origin origin
	meta   Meta
}

// origin has rows of which one changes when another history replaces a revision.
type origin struct{ log, job string }

// ReadRevision returns the revision of the fence row: every acknowledged write is in the table.
func (t *table) ReadRevision(ctx context.Context, _ auth.Permit, _ bool) (int64, error) {
	token, _, err := fence.LoadToken(ctx, t.store)
	if err != nil {
		return 0, err
	}
	rev := max(token.Revision, 1)
	if t.origin, err = t.originOf(ctx, rev); err != nil {
		return 0, err
	}
	users, err := auth.NewUsers(t.store).Load(ctx)
	if err != nil {
		return 0, err
	}
	alarms, err := quota.ReadAlarms(ctx, t.store)
	if err != nil {
		return 0, err
	}
	t.meta = Meta{Term: token.Term, Sequence: token.Sequence, Auth: users, Alarms: alarms}
	return rev, nil
}

// originOf returns the origin of revision rev. Errors: errReplaced if the table lacks it, the database's.
func (t *table) originOf(ctx context.Context, rev int64) (o origin, err error) {
	rows, err := t.store.MultiGet(ctx, [][]byte{coder.FenceKey(), coder.EncodeLogKey(rev, 1), coder.JobKey()})
	if err != nil {
		return o, err
	}
	token, err := coder.DecodeFenceToken(rows[0])
	if err == nil && max(token.Revision, 1) < rev {
		err = errReplaced
	}
	return origin{log: string(rows[1]), job: string(rows[2])}, err
}

// Mark reads the compaction mark.
func (t *table) Mark(ctx context.Context) (int64, error) { return compact.NewMark(t.store).Read(ctx) }

// Meta implements Node.
func (t *table) Meta() Meta { return t.meta }
