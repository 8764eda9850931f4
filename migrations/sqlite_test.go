package migrations

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

// TestSQLiteLockOfAnotherProcess: with the wait of Up this takes 10 s.
func TestSQLiteLockOfAnotherProcess(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "test.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	driver := func() *sqliteDriver {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		return &sqliteDriver{ctx: t.Context(), conn: conn}
	}
	holder, other := driver(), driver()
	require.NoError(t, holder.Lock())
	require.ErrorIs(t, translate(other.Lock()), ErrLocked)
	require.NoError(t, holder.Unlock())
	require.NoError(t, other.Lock())
	require.NoError(t, other.Unlock())
}
