package sqldbtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqlite"
)

func TestStoreHasTheTable(t *testing.T) {
	s := sqldbtest.Opener(sqlite.OpenDB).Store(t, sqldbtest.SQLiteURL(t), sqlstore.Options{})
	sqldbtest.CreateFence(t, s)
	require.NoError(t, sqldbtest.SwapFence(t.Context(), s, 2))
	require.Error(t, sqldbtest.SwapFence(t.Context(), s, 2), "the row is at step 2 already")
	value, err := s.Get(t.Context(), coder.FenceKey())
	require.NoError(t, err)
	require.Equal(t, sqldbtest.FenceValue(2), value)
}
