package storetest

import (
	"bytes"
	"context"
	"iter"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// OverwriteRows returns s with an Iter that overwrites the value of each row when the next one is asked for: a caller
// that keeps a part of a value would keep all of it in memory.
func OverwriteRows(s sqlstore.Store) sqlstore.Store { return overwritten{s} }

type overwritten struct{ sqlstore.Store }

func (s overwritten) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	return func(yield func(sqlstore.Row, error) bool) {
		for row, err := range s.Store.Iter(ctx, r) {
			row.Value = bytes.Clone(row.Value)
			more := yield(row, err)
			if clear(row.Value); !more {
				return
			}
		}
	}
}
