package replicated

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

// readsSeeWhatWasCommittedElsewhere commits large batches on one server of a
// Galera and reads the last row of each on another one at once, which has to apply
// it first. It reports the cost of the wait, and how often a session without it
// misses the row.
func readsSeeWhatWasCommittedElsewhere(t *testing.T, db *harness.Replicated) {
	const (
		batches = 20
		rows    = 1500
		reads   = 200
	)
	open := sqldbtest.Opener(engines.OpenDB)
	here, there := open.Store(t, db.URL(0), sqlstore.Options{}), open.Store(t, db.URL(1), sqlstore.Options{})
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
		err := unaware.QueryRowContext(t.Context(), "SELECT internal_key FROM object WHERE internal_key = ?",
			last).Scan(&found)
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
		return unaware.QueryRowContext(context.Background(), "SELECT object_value FROM object WHERE internal_key = ?",
			last).Scan(&value)
	})
	t.Logf("a read that waits took %s, one that does not %s", waiting, alone)
}
