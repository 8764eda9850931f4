package mysql

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// TestServerPreparesNoMoreStatements: the clients of a server share the number of statements that it keeps
// prepared, and others may use it up.
func TestServerPreparesNoMoreStatements(t *testing.T) {
	t.Parallel()
	server := enginetest.StartServer(t)
	enginetest.Exec(t, server.URL(), "SET GLOBAL max_prepared_stmt_count = 0")
	s, ctx := openURL(t, server.URL(), sqlstore.Options{}), t.Context()
	createFence(t, s)
	for n := range int64(3) {
		require.NoError(t, swapFence(ctx, s, n+2))
	}
	b := s.BeginBatchWrite()
	b.Put([]byte("a row that needs a transaction"), []byte("x"))
	require.NoError(t, b.Commit(ctx))
	value, err := s.Get(ctx, coder.FenceKey())
	require.NoError(t, err)
	require.Equal(t, fenceToken(4), value)
	values, err := s.MultiGet(ctx, [][]byte{coder.FenceKey(), []byte("none")})
	require.NoError(t, err)
	require.Equal(t, [][]byte{fenceToken(4), nil}, values)
	_, _, err = s.List(ctx, sqlstore.ListQuery{Start: []byte("a"), End: []byte("z")})
	require.NoError(t, err)
}
