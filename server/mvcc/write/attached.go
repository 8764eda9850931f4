package write

import (
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// EachAttached calls see, in key order, with the keys that the table has attached to lease id:
// those after the key after, or all if that is nil, and at most limit, or all if that is 0. It
// stops at the first error of see, and returns it. Errors: see's, ctx's, the database's.
func EachAttached(ctx context.Context, store sqlstore.Store, id int64, after []byte, limit int,
	see func(key []byte) error) error {
	lo, hi := coder.AttachmentBounds(id)
	if after != nil {
		lo = append(coder.EncodeAttachmentKey(id, after), 0)
	}
	return EachAttachment(ctx, store, sqlstore.Range{Start: lo, End: hi, Limit: limit, KeysOnly: true},
		func(_ int64, key []byte) error { return see(key) })
}

// EachAttachment calls see with the attachments of keys to leases in r. It stops at the first
// error of see, and returns it. Errors: see's, ctx's, the database's.
func EachAttachment(ctx context.Context, store sqlstore.Store, r sqlstore.Range,
	see func(id int64, key []byte) error) error {
	for row, err := range store.Iter(ctx, r) {
		if err != nil {
			return err
		}
		id, key, err := coder.DecodeAttachmentKey(row.Key)
		if err != nil {
			return err
		}
		if err := see(id, key); err != nil {
			return err
		}
	}
	return nil
}
