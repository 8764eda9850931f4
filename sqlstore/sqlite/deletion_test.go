package sqlite

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// TestRowsOfADeletionComeInKeyOrder, whatever the statistics say that someone made with ANALYZE: here, that a scan of
// the table is as good, in which rows come in the order in which they were created.
func TestRowsOfADeletionComeInKeyOrder(t *testing.T) {
	t.Parallel()
	s := openURL(t, newURL(t), sqlstore.Options{})
	key := func(i int) []byte { return coder.EncodeIndexKey(fmt.Appendf(nil, "%05d", i)) }
	live := coder.EncodeIndex(coder.Index{ModRevision: 2, CreateRevision: 2, Version: 1})
	commit := func(fill func(b sqlstore.BatchWrite)) {
		b := s.BeginBatchWrite()
		fill(b)
		require.NoError(t, b.Commit(t.Context()))
	}
	const n = sqldb.LeastDeleted
	commit(func(b sqlstore.BatchWrite) { b.Put(key(n/2), live) })
	_, err := s.Database().Write().ExecContext(t.Context(), "ANALYZE")
	require.NoError(t, err)
	commit(func(b sqlstore.BatchWrite) {
		for i := range n {
			b.Put(key(i), live)
		}
	})
	commit(func(b sqlstore.BatchWrite) {
		for i := range n {
			b.CAS(key(i), coder.EncodeIndex(coder.Index{ModRevision: 3, PrevRevision: 2, Tombstone: true}), live)
		}
	})
}
