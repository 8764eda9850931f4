package sqlite

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Other clients wait while the keys of a range are deleted.
func TestManyIndexRowsAreReplacedByOneStatement(t *testing.T) {
	faults := faultdriver.New()
	s := openURL(t, newURL(t), sqlstore.Options{
		WrapConnector: faults.Wrap})
	commit := func(fill func(b sqlstore.BatchWrite, i int)) int {
		faults.Set(nil)
		b := s.BeginBatchWrite()
		for i := range sqldb.LeastDeleted {
			fill(b, i)
		}
		require.NoError(t, b.Commit(t.Context()))
		return len(faults.Seen())
	}
	key := func(i int) []byte { return coder.EncodeIndexKey(fmt.Appendf(nil, "%05d", i)) }
	live := coder.EncodeIndex(coder.Index{ModRevision: 2, CreateRevision: 2, Version: 1})
	require.Greater(t, commit(func(b sqlstore.BatchWrite, i int) { b.Put(key(i), live) }), sqldb.LeastDeleted)
	tombstone := coder.EncodeIndex(coder.Index{ModRevision: 3, PrevRevision: 2, Tombstone: true})
	require.Less(t, commit(func(b sqlstore.BatchWrite, i int) { b.CAS(key(i), tombstone, live) }), 20)
	value, err := s.Get(t.Context(), key(sqldb.LeastDeleted-1))
	require.NoError(t, err)
	require.Equal(t, tombstone, value)
}
