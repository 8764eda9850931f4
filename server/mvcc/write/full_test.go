package write

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

// SQLite does not let a file shrink, so a file of at most one page cannot grow.
const (
	mayNotGrow = "PRAGMA max_page_count = 1"
	mayGrow    = "PRAGMA max_page_count = 1000000"
)

// limited makes connections that may not let the file grow while full is set.
type limited struct {
	driver.Connector
	full *atomic.Bool
}

func (l limited) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := l.Connector.Connect(ctx)
	if err != nil || !l.full.Load() {
		return conn, err
	}
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, mayNotGrow, nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func TestFullDatabaseRefusesWritesUntilItHasSpace(t *testing.T) {
	var full atomic.Bool
	store := sqldbtest.Opener(engines.OpenDB).Store(t, sqldbtest.SQLiteURL(t), sqlstore.Options{
		WrapConnector: func(c driver.Connector) driver.Connector { return limited{c, &full} },
	})
	l := lead(t, store)
	l.must(t, put("k", "0"))
	before := l.Revision()
	large := func(value string) *mvcc.Txn { return put("k", strings.Repeat(value, 100_000)) }
	pragma := func(text string) {
		_, err := store.Database().SQL().Exec(text)
		require.NoError(t, err)
	}

	full.Store(true)
	pragma(mayNotGrow)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of an attempt that is repeated
	defer cancel()
	for range 3 {
		first := Request{As: auth.System, Command: NewTxnCommand(large("1"))}
		second := Request{As: auth.System, Command: NewTxnCommand(large("2"))}
		for _, err := range l.p.ExecuteBatch(ctx, first, second) {
			require.ErrorIs(t, err, sqlstore.ErrFull)
			require.NotErrorIs(t, err, mvcc.ErrTimeout)
		}
	}
	require.Equal(t, before, l.Revision(), "a write that was refused took effect")
	require.Zero(t, testutil.ToFloat64(l.p.cfg.Metrics.commitRetries))
	require.Equal(t, 3, l.refused)

	full.Store(false)
	pragma(mayGrow)
	l.must(t, large("3"))
	require.Equal(t, before+1, l.Revision())
}
