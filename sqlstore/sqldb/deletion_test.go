package sqldb

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// swaps returns the swaps of n index rows for tombstones of revision 7, in key order.
func swaps(n int) (ops []sqlstore.Op) {
	for i := range n {
		ops = append(ops, sqlstore.Op{
			Kind: sqlstore.OpCAS, Key: coder.EncodeIndexKey(fmt.Appendf(nil, "%05d", i)),
			Value: coder.EncodeIndex(coder.Index{ModRevision: 7, PrevRevision: 5, Tombstone: true}),
			Old:   coder.EncodeIndex(coder.Index{ModRevision: 5, CreateRevision: 5, Version: 1, Lease: 3}),
		})
	}
	return ops
}

func TestFindDeletion(t *testing.T) {
	token := sqlstore.Op{Kind: sqlstore.OpCAS, Key: coder.FenceKey()}
	put := sqlstore.Op{Kind: sqlstore.OpPut, Key: []byte("z")}
	ops := append(append([]sqlstore.Op{token}, swaps(LeastDeleted)...), put)
	d := FindDeletion(ops)
	require.NotNil(t, d)
	require.Equal(t, ops[1:len(ops)-1], d.Swaps)
	require.Equal(t, []sqlstore.Op{token, put}, d.Others)
	require.Equal(t, ops[1].Key, d.First)
	require.Equal(t, ops[LeastDeleted].Key, d.Last)
	require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 7}, d.Revision)
	for i := range d.Swaps {
		require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 5}, d.OldRevision(i))
	}

	require.Nil(t, FindDeletion(nil))
	require.Nil(t, FindDeletion(swaps(LeastDeleted-1)), "too few")
	require.Len(t, FindDeletion(append(swaps(LeastDeleted/2), swaps(LeastDeleted)...)).Swaps,
		LeastDeleted, "the keys begin again")
	index := func(x coder.Index) func(*sqlstore.Op) {
		return func(op *sqlstore.Op) { op.Value = coder.EncodeIndex(x) }
	}
	for name, change := range map[string]func(*sqlstore.Op){
		"another kind":     func(op *sqlstore.Op) { op.Kind = sqlstore.OpCASOrPut },
		"another row":      func(op *sqlstore.Op) { op.Key = append([]byte("z"), op.Key...) },
		"another revision": index(coder.Index{ModRevision: 8, PrevRevision: 5, Tombstone: true}),
		"no tombstone":     index(coder.Index{ModRevision: 7, PrevRevision: 5}),
		"a gap":            index(coder.Index{ModRevision: 7, PrevRevision: 5, Tombstone: true, Gap: true}),
		"another before":   index(coder.Index{ModRevision: 7, PrevRevision: 4, Tombstone: true}),
		"a tombstone before": func(op *sqlstore.Op) {
			op.Old = coder.EncodeIndex(coder.Index{ModRevision: 5, Tombstone: true})
		},
		"no index row": func(op *sqlstore.Op) { op.Value = []byte{1} },
	} {
		ops := swaps(LeastDeleted)
		change(&ops[LeastDeleted/2])
		require.Nil(t, FindDeletion(ops), name)
	}
}
