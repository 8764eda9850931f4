package backend

import (
	"context"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// turning is a store whose iterations read one row at a time, and call between
// before each.
type turning struct {
	sqlstore.Store
	between func(rows int)
}

func (s *turning) Iter(ctx context.Context, r sqlstore.Range) sqlstore.Iter {
	r.PageBytes = 1
	return &turningIter{Iter: s.Store.Iter(ctx, r), store: s}
}

type turningIter struct {
	sqlstore.Iter
	store *turning
	rows  int
}

func (it *turningIter) Next() bool {
	if it.store.between != nil {
		it.store.between(it.rows)
	}
	it.rows++
	return it.Iter.Next()
}

// The rows of a key that was deleted below the compact revision go away together,
// but maybe between the reading of one and of the other: the hash must not take
// the first for one that compaction keeps, nor fail.
func TestAHashWhileCompactionRemovesRows(t *testing.T) {
	store := &turning{Store: newStore(t)}
	b := open(t, store, nil)
	mustTxn(t, b, put("a", "1"))
	mustTxn(t, b, del("a"))
	mustTxn(t, b, put("b", "1"))
	mustTxn(t, b, put("b", "2"))
	var left [2]sqlstore.Row // of key a
	for i, rev := range []int64{2, 3} {
		left[i].Key = coder.EncodeVersionKey([]byte("a"), rev)
		values, err := store.MultiGet(t.Context(), [][]byte{left[i].Key})
		if err != nil || values[0] == nil {
			t.Fatal(values, err)
		}
		left[i].Value = values[0]
	}
	if _, err := b.Compact(t.Context(), 4, true); err != nil {
		t.Fatal(err)
	}
	marshal := func(r *coder.Record) ([]byte, error) { return r.Value, nil }
	want, err := b.HashKV(t.Context(), 0, marshal)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(sqlstore.BatchWrite)) {
		batch := store.BeginBatchWrite()
		f(batch)
		if err := batch.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
	// As if they had not been removed yet, until the first of them is read.
	change(func(w sqlstore.BatchWrite) {
		for _, row := range left {
			w.Put(row.Key, row.Value)
		}
	})
	removed := false
	store.between = func(rows int) {
		if rows == 1 && !removed {
			removed = true
			change(func(w sqlstore.BatchWrite) { w.Del(left[0].Key); w.Del(left[1].Key) })
		}
	}
	got, err := b.HashKV(t.Context(), 0, marshal)
	if err != nil || got != want || !removed {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}
