package replica

import (
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Range answers r. A linearizable one sees every write acknowledged before the
// call. Errors: mvcc.ErrCompacted, mvcc.ErrFutureRevision, ErrNotServing, the database's.
func (b *Replica) Range(ctx context.Context, as auth.Permit, r *mvcc.RangeRequest,
	linearizable bool) (*mvcc.RangeResult, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	res, err := b.reader.Range(ctx, as, r, linearizable)
	return res, mvcc.PublicError(ctx, err)
}

// RangeStream answers q in chunks, see read.Reading.RangeStream. The request timeout bounds
// the confirmation of the newest revision, and not the answer.
func (b *Replica) RangeStream(ctx context.Context, as auth.Permit, q *mvcc.RangeRequest, linearizable bool,
	chunkBytes int, send func(chunk *mvcc.RangeResult, last bool) error) error {
	now, err := b.reader.Now(ctx, as, linearizable)
	if err != nil {
		return err
	}
	return now.RangeStream(ctx, q, chunkBytes, send)
}

// Children lists one level of keys, at the current revision. Errors: those of Range.
func (b *Replica) Children(ctx context.Context, as auth.Permit, q *read.ChildrenRequest) (*read.Children, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	res, err := b.reader.Children(ctx, as, q)
	return res, mvcc.PublicError(ctx, err)
}

// KeyHistory lists the uncompacted versions of a key. Errors: those of Range.
func (b *Replica) KeyHistory(ctx context.Context, as auth.Permit, q *read.KeyHistoryRequest) (*read.KeyHistory, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	res, err := b.reader.KeyHistory(ctx, as, q)
	return res, mvcc.PublicError(ctx, err)
}

// Watched lists at most so many of the ranges that are watched on this node, see watch.Hub.Watched. Errors: those of
// the permit.
func (b *Replica) Watched(ctx context.Context, as auth.Permit,
	most int) (ranges []watch.Watched, count int, err error) {
	if err := as.Check(ctx, b); err != nil {
		return nil, 0, err
	}
	if b.hub == nil {
		return nil, 0, mvcc.ErrNotServing
	}
	ranges, count = b.hub.Watched(most)
	return ranges, count, nil
}

// OpenSnapshot returns a snapshot, see export.Exporter.OpenSnapshot.
func (b *Replica) OpenSnapshot(ctx context.Context, as auth.Permit) (*export.Snapshot, error) {
	return b.exporter.OpenSnapshot(ctx, as)
}

// HashKV returns etcd's hash of all revisions up to rev, see export.Exporter.HashKV.
func (b *Replica) HashKV(ctx context.Context, as auth.Permit, rev int64,
	marshal func(*coder.Record) ([]byte, error)) (export.Hash, error) {
	return b.exporter.HashKV(ctx, as, rev, marshal)
}

// Hash returns a hash of all rows of the table, see export.Exporter.Hash.
func (b *Replica) Hash(ctx context.Context, as auth.Permit) (uint32, error) {
	return b.exporter.Hash(ctx, as)
}

var (
	_ read.Node   = (*Replica)(nil)
	_ export.Node = (*Replica)(nil)
)

// Await implements read.Node.
func (b *Replica) Await(ctx context.Context, rev int64) error { return b.tso.Wait(ctx, rev) }

// CountRange implements read.Node.
func (b *Replica) CountRange(table bool) {
	if table {
		b.metrics.rangeMisses.Inc()
	} else {
		b.metrics.rangeHits.Inc()
	}
}

// Meta implements export.Node.
func (b *Replica) Meta() export.Meta {
	token := b.seen.Token()
	return export.Meta{Term: token.Term, Sequence: token.Sequence, Auth: b.AuthRows(), Alarms: b.alarms.Stored()}
}
