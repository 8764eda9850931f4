package engines_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
)

// openBrokenTiDB is openBroken on a server that reports that it is a TiDB.
func openBrokenTiDB(t testing.TB) *broken {
	t.Helper()
	disguise := &enginetest.TiDB{}
	return openBrokenAs(t, enginetest.Database, func(base driver.Connector) driver.Connector { return disguise.Wrap(base) })
}

// tidbPassing are the errors after which a read may succeed. A commit that met one was rolled back, unless an older
// TiDB took an error of a region for a rollback. Numbers and texts are those of TiDB's documentation
// (docs.pingcap.com/tidb/stable/error-codes) and source. Every other engine reports them as unknown errors.
var tidbPassing = []*mysql.MySQLError{
	{Number: 9001, Message: "PD server timeout"},
	{Number: 9002, Message: "TiKV server timeout"},
	{Number: 9003, Message: "TiKV server is busy"},
	{Number: 9004, Message: "Resolve lock timeout"},
	{Number: 9005, Message: "Region is unavailable"},
	{Number: 9006, Message: "GC life time is shorter than transaction duration"},
	{Number: 8055, Message: "snapshot is older than GC safe point"},
	{Number: 1105, Message: "Information schema is changed. [try again later]"},
}

// tidbErrors are errors of TiDB by what Commit answers, as serverErrors are.
var tidbErrors = map[error][]*mysql.MySQLError{
	nil: {
		{Number: 8002, Message: "can not retry select for update statement"},
		{Number: 8005, Message: "Write Conflict, stale write [try again later]"},
		{Number: 8022, Message: "Error: KV error safe to retry [try again later]"},
		{Number: 8028, Message: "Information schema is changed during the execution of the statement. [try again later]"},
		{Number: 9007, Message: "Write conflict, reason=Optimistic [try again later]"},
		{Number: 1205, Message: "Lock wait timeout exceeded; try restarting transaction"},
		{Number: 1213, Message: "Deadlock found when trying to get lock; try restarting transaction"},
	},
	sqlstore.ErrTooLarge: {
		{Number: 8004, Message: "Transaction is too large"}, {Number: 8025, Message: "entry too large"},
	},
	sqlstore.ErrUnavailable: {
		{Number: 8027, Message: "Information schema is out of date"}, {Number: 8120, Message: "start tso timeout"},
	},
	// The locks of a transaction vanished when a TiKV node failed (pingcap/tidb#60679).
	sqlstore.ErrUncertain: append(tidbPassing[:len(tidbPassing):len(tidbPassing)],
		&mysql.MySQLError{Number: 1105, Message: "tikv aborts txn: PessimisticLockNotFound { reason: " +
			"LockMissingAmendFail }"}),
	errRefused: {
		{Number: 8141, Message: "assertion failed"},
		{Number: 8147, Message: "transaction aborted because lazy uniqueness check is enabled"},
	},
}

// TestCommitIsTruthfulWhateverTiDBReports injects each failure of TiDB into each statement of each way to commit.
func TestCommitIsTruthfulWhateverTiDBReports(t *testing.T) {
	t.Parallel()
	b := openBrokenTiDB(t)
	try := func(fault faultdriver.Fault, want error) {
		for name, shape := range shapes {
			hit := true
			for n := 1; hit; n++ { // statement after statement, until the commit has no more
				hit = false
				deciding, at := false, 0
				b.faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
					if setup(s) {
						return faultdriver.Fault{}
					}
					if at++; at != n {
						return faultdriver.Fault{}
					}
					hit, deciding = true, s.Kind == faultdriver.Commit || s.Kind == faultdriver.Exec && name == "one statement"
					return fault
				})
				applied, err := b.commit(t.Context(), t, shape)
				what := fmt.Sprintf("%+v at statement %d of %s", fault, n, name)
				truthful(t, what, applied, err)
				switch {
				case !hit, want == nil:
					require.NoError(t, err, what)
				case !deciding:
					require.NotErrorIs(t, err, sqlstore.ErrUncertain, "%s: nothing was committed for sure", what)
				case !errors.Is(want, errRefused):
					require.ErrorIs(t, err, want, what)
				case name == "one statement": // COMMIT knows of no refusal
					require.Error(t, err, what)
					require.NotErrorIs(t, err, sqlstore.ErrUncertain, what)
				}
			}
		}
	}
	for want, errs := range tidbErrors {
		for _, err := range errs {
			try(faultdriver.Fault{Before: err}, want)
		}
	}
	// TiDB closes the connection if it does not know whether it committed (ErrResultUndetermined).
	try(faultdriver.Fault{Before: mysql.ErrInvalidConn, Cut: true}, sqlstore.ErrUncertain)
	try(faultdriver.Fault{After: mysql.ErrInvalidConn, Cut: true}, sqlstore.ErrUncertain)
}

// TestReadsAreRepeatedWhenTiDBIsBusy: a read that a region, TiKV or PD fails is repeated after pauses, but not for
// ever, and not beyond the caller's time.
func TestReadsAreRepeatedWhenTiDBIsBusy(t *testing.T) {
	t.Parallel()
	many := make([][]byte, 1000)
	for i := range many {
		many[i] = fmt.Append(nil, i)
	}
	lo, hi := []byte("a"), []byte("z")
	reads := map[string]func(context.Context, sqlstore.Store) error{
		"get":       func(ctx context.Context, s sqlstore.Store) error { _, err := s.Get(ctx, []byte("plain")); return err },
		"multi-get": func(ctx context.Context, s sqlstore.Store) error { _, err := s.MultiGet(ctx, many[:1]); return err },
		"snapshot":  func(ctx context.Context, s sqlstore.Store) error { _, err := s.MultiGet(ctx, many); return err },
		"iteration": func(ctx context.Context, s sqlstore.Store) error {
			_, _, err := sqlstore.First(s.Iter(ctx, sqlstore.Range{Start: lo, End: hi}))
			return err
		},
		"list": func(ctx context.Context, s sqlstore.Store) error {
			_, _, err := s.List(ctx, sqlstore.ListQuery{Start: lo, End: hi})
			return err
		},
		"count": func(ctx context.Context, s sqlstore.Store) error { _, _, err := s.Count(ctx, lo, hi, 1); return err },
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBrokenTiDB(t)
			for _, passing := range tidbPassing {
				struck := b.strike(3, isQuery, faultdriver.Fault{Before: passing})
				require.NoError(t, read(t.Context(), b.store), passing)
				require.Equal(t, 3, *struck, passing)

				struck = b.strike(-1, isQuery, faultdriver.Fault{Before: passing})
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				err := read(ctx, b.store)
				cancel()
				require.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sqlstore.ErrUnavailable), err)
				require.Less(t, *struck, 6, "the pauses are longer than the caller's time")
				b.faults.Set(nil)
			}
			n := b.strike(-1, func(faultdriver.Statement) bool { return true },
				faultdriver.Fault{Before: &mysql.MySQLError{Number: 9005, Message: "Region is unavailable"}})
			require.ErrorIs(t, read(t.Context(), b.store), sqlstore.ErrUnavailable)
			require.Less(t, *n, 20)
		})
	}
}
