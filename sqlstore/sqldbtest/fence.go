package sqldbtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// FenceValue returns the fence row at step n.
func FenceValue(n int64) []byte { return coder.EncodeFenceToken(coder.FenceToken{Sequence: n}) }

// CreateFence creates the fence row at step 1.
func CreateFence(t testing.TB, s sqlstore.Store) {
	t.Helper()
	b := s.BeginBatchWrite()
	b.PutIfNotExist(coder.FenceKey(), FenceValue(1))
	require.NoError(t, b.Commit(context.Background()))
}

// SwapFence commits the fence row's step from n-1 to n, and the row "beside n".
func SwapFence(ctx context.Context, s sqlstore.Store, n int64) error {
	b := s.BeginBatchWrite()
	b.CAS(coder.FenceKey(), FenceValue(n), FenceValue(n-1))
	b.PutIfNotExist(fmt.Appendf(nil, "beside %d", n), []byte("x"))
	return b.Commit(ctx)
}
