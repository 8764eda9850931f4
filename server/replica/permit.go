package replica

import (
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

var _ auth.View = (*Replica)(nil)

// MayWriteLease implements auth.View.
func (b *Replica) MayWriteLease(ctx context.Context, id int64, _ string, see func(key []byte) error) error {
	return b.EachLeaseKey(ctx, id, see)
}

// EachLeaseKey calls see with each key attached to lease id in the table, in key order, until
// see returns an error, which it returns.
func (b *Replica) EachLeaseKey(ctx context.Context, id int64, see func(key []byte) error) error {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	return mvcc.PublicError(ctx, write.EachAttached(ctx, b.store, id, nil, 0, see))
}

// AnyLeasesKeys calls see with each key attached to any lease in the table, until see returns
// an error, which it returns.
func (b *Replica) AnyLeasesKeys(ctx context.Context, see func(id int64, key []byte) error) error {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	lo, hi := coder.AllAttachmentBounds()
	return mvcc.PublicError(ctx, write.EachAttachment(ctx, b.store,
		sqlstore.Range{Start: lo, End: hi, KeysOnly: true}, see))
}
