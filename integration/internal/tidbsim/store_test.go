package tidbsim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/tidbsim"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

// TestConformance runs the storage suite on the simulated TiDB.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t testing.TB) sqlstore.Store {
		s, err := tidbsim.Open(1, sqlstore.Options{})
		require.NoError(t, err)
		return s
	})
}

// TestConformanceWithoutRepetition: TiDB reports each conflict, and the rows of a commit are
// in several regions, whose locks are taken in no certain order.
func TestConformanceWithoutRepetition(t *testing.T) {
	storetest.Run(t, func(t testing.TB) sqlstore.Store {
		c := tidbsim.New(tidbsim.Config{Globals: map[string]string{"tidb_retry_limit": "0"}})
		s, err := c.Open(t.Context(), sqlstore.Options{})
		require.NoError(t, err)
		require.NoError(t, c.Split([]byte("000500"), []byte("005000"), []byte("W"), []byte("a"), []byte("r")))
		return s
	})
}
