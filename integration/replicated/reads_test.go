package replicated

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/replicated"
	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestReadsSeeWhatWasCommittedElsewhere commits large batches on one server of a
// Galera and reads the last row of each on another one at once, which has to apply
// it first. It tells what the wait costs, and how often a session without it
// misses the row.
func TestReadsSeeWhatWasCommittedElsewhere(t *testing.T) {
	const (
		batches = 20
		rows    = 1500
		reads   = 200
	)
	db := replicated.Start(t, replicated.Galera)
	here, there := openStore(t, db.URL(0)), openStore(t, db.URL(1))
	unaware, err := there.Database().SQL().Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, unaware.Close()) }()
	_, err = unaware.ExecContext(t.Context(), "SET SESSION wsrep_sync_wait = 0")
	require.NoError(t, err)

	missed := 0
	for n := range batches {
		b := here.BeginBatchWrite()
		key := func(row int) []byte { return fmt.Appendf(nil, "elsewhere/%06d/%06d", n, row) }
		for row := range rows {
			b.PutIfNotExist(key(row), make([]byte, 1000))
		}
		require.NoError(t, b.Commit(t.Context()))
		last := key(rows - 1)
		var found []byte
		err := unaware.QueryRowContext(t.Context(), "SELECT internal_key FROM object WHERE internal_key = ?", last).Scan(&found)
		if errors.Is(err, sql.ErrNoRows) {
			missed++
		} else {
			require.NoError(t, err)
		}
		_, err = there.Get(t.Context(), last)
		require.NoError(t, err, "batch %d was acknowledged by one server, and is not there on another", n)
	}
	t.Logf("a session that does not wait missed %d of %d", missed, batches)

	each := func(read func() error) time.Duration {
		began := time.Now()
		for range reads {
			require.NoError(t, read())
		}
		return time.Since(began) / reads
	}
	last := fmt.Appendf(nil, "elsewhere/%06d/%06d", batches-1, rows-1)
	waiting := each(func() error { _, err := there.Get(context.Background(), last); return err })
	alone := each(func() error {
		var value []byte
		return unaware.QueryRowContext(context.Background(), "SELECT object_value FROM object WHERE internal_key = ?", last).Scan(&value)
	})
	t.Logf("a read that waits took %s, one that does not %s", waiting, alone)
}

func openStore(t *testing.T, datastore string) *sqlstore.DBStore {
	t.Helper()
	u, err := sqlstore.ParseURL(datastore)
	require.NoError(t, err)
	db, err := sqlstore.OpenDB(u, sqlstore.Options{})
	require.NoError(t, err)
	require.NoError(t, errors.Join(migrations.Up(t.Context(), db.DialectName(), db.SQL()), db.Close()))
	s, err := sqlstore.Open(t.Context(), u, sqlstore.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
