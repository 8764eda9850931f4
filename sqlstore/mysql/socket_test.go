package mysql

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestUnixSocketOfTheServer(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		u, err := sqlstore.ParseURL(p.Database(t))
		require.NoError(t, err)
		db, err := OpenDB(u, sqlstore.Options{})
		require.NoError(t, err)
		require.NoError(t, db.SQL().QueryRowContext(t.Context(), "SELECT @@socket").Scan(&u.Socket))
		require.NoError(t, db.Close())
		if u.Socket == "" || u.Socket[0] != '/' {
			t.Skip("the server has no socket with an absolute path")
		}
		u.Address = "localhost:1" // is not used
		db, err = OpenDB(u, sqlstore.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		require.NoError(t, db.SQL().PingContext(t.Context()))
	})
}
