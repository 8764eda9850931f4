package engines_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Other clients wait while the keys of a range are deleted: one statement is faster than a swap for each. But the keys
// of a lease may be spread over all keys, which no statement may read.
func TestManyIndexRowsAreReplacedByOneStatement(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, database func(testing.TB) string) {
		faults := faultdriver.New()
		s := openURL(t, database(t), sqlstore.Options{WrapConnector: faults.Wrap})
		live := coder.EncodeIndex(coder.Index{ModRevision: 2, CreateRevision: 2, Version: 1})
		old := coder.EncodeIndex(coder.Index{ModRevision: 2, Tombstone: true})
		deleted := coder.EncodeIndex(coder.Index{ModRevision: 3, PrevRevision: 2, Tombstone: true})
		for _, between := range []int{0, 1, 4} {
			key := func(i int) []byte { return coder.EncodeIndexKey(fmt.Appendf(nil, "%d/%05d", between, i)) }
			rows := sqldb.LeastDeleted * (between + 1)
			b := s.BeginBatchWrite()
			for i := range rows {
				if i%(between+1) == 0 {
					b.Put(key(i), live)
				} else {
					b.Put(key(i), old)
				}
			}
			require.NoError(t, b.Commit(t.Context()))
			faults.Set(nil)
			b = s.BeginBatchWrite()
			b.Put([]byte("other"), nil)
			for i := 0; i < rows; i += between + 1 {
				b.CAS(key(i), deleted, live)
			}
			require.NoError(t, b.Commit(t.Context()))
			require.Equal(t, between < 4, slices.ContainsFunc(faults.Seen(), func(s faultdriver.Statement) bool {
				return strings.HasPrefix(s.Text, "UPDATE") && strings.Contains(s.Text, "internal_key <=")
			}), "%d other rows between each two", between)
			for _, i := range []int{0, rows - between - 1} {
				value, err := s.Get(t.Context(), key(i))
				require.NoError(t, err)
				require.Equal(t, deleted, value)
			}
		}
	})
}
