package sqldbtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// ChainValue returns the chain row at step n.
func ChainValue(n int64) []byte { return coder.EncodeChain(coder.Chain{Sequence: n}) }

// CreateChain creates the chain row at step 1.
func CreateChain(t testing.TB, s sqlstore.Store) {
	t.Helper()
	b := s.BeginBatchWrite()
	b.PutIfNotExist(coder.ChainKey(), ChainValue(1))
	require.NoError(t, b.Commit(context.Background()))
}

// SwapChain commits the chain row's step from n-1 to n, and the row "beside n".
func SwapChain(ctx context.Context, s sqlstore.Store, n int64) error {
	b := s.BeginBatchWrite()
	b.CAS(coder.ChainKey(), ChainValue(n), ChainValue(n-1))
	b.PutIfNotExist(fmt.Appendf(nil, "beside %d", n), []byte("x"))
	return b.Commit(ctx)
}
