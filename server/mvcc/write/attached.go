package write

import (
	"context"
	"iter"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Attached ranges over the keys of the attachment rows in [lo, hi): at most limit, or all if that is 0. Those of
// coder.AttachmentBounds are in key order. It ends with the first error. Errors: ctx's, the database's.
func Attached(ctx context.Context, store sqlstore.Store, lo, hi []byte, limit int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for row, err := range store.Iter(ctx, sqlstore.Range{Start: lo, End: hi, Limit: limit, KeysOnly: true}) {
			var key []byte
			if err == nil {
				_, key, err = coder.DecodeAttachmentKey(row.Key)
			}
			if !yield(key, err) || err != nil {
				return
			}
		}
	}
}
