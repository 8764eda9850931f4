package mysql

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// TestDefragmentGivesUp if a transaction uses the table, because all statements wait behind it.
func TestDefragmentGivesUp(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		raw := p.Database(t)
		s := openURL(t, raw, sqlstore.Options{})
		createFence(t, s)
		if !p.Can(enginetest.Rebuild) { // it has nothing to do
			require.NoError(t, s.Defragment(t.Context()))
			return
		}
		galera := openURL(t, raw, sqlstore.Options{WrapConnector: (&enginetest.TiDB{Version: "8.0",
			Variables: map[string]string{"wsrep_on": "ON", "wsrep_sync_wait": "1"}}).Wrap})
		ctx, cancel := context.WithTimeout(t.Context(), eventually.Deadline)
		defer cancel()
		backup, err := s.Database().Read().Conn(ctx)
		require.NoError(t, err)
		defer func() { require.NoError(t, backup.Close()) }()
		for _, text := range []string{"START TRANSACTION WITH CONSISTENT SNAPSHOT", "SELECT * FROM object"} {
			_, err := backup.ExecContext(ctx, text)
			require.NoError(t, err)
		}
		require.ErrorContains(t, s.Defragment(ctx), "Lock wait timeout")
		require.NoError(t, galera.Defragment(ctx)) // which would stop all nodes
		_, err = s.Get(ctx, coder.FenceKey())
		require.NoError(t, err)
		_, err = backup.ExecContext(ctx, "ROLLBACK")
		require.NoError(t, err)
		require.NoError(t, s.Defragment(ctx))
	})
}
