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

// errorsOf are the store's errors of commits that TiDB did not carry out.
var errorsOf = map[faultdriver.Outcome]error{
	faultdriver.RolledBack: nil, // it is repeated
	faultdriver.TooLarge:   sqlstore.ErrTooLarge,
	faultdriver.NotReady:   sqlstore.ErrUnavailable,
	faultdriver.InDoubt:    sqlstore.ErrUncertain,
}

// TestCommitIsTruthfulWhateverTiDBReports injects each failure of TiDB into each statement of each way to commit.
func TestCommitIsTruthfulWhateverTiDBReports(t *testing.T) {
	t.Parallel()
	b := openBrokenTiDB(t)
	for _, fault := range faultdriver.TiDBFaults() {
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
					return fault.Fault
				})
				applied, err := b.commit(t.Context(), t, shape)
				what := fmt.Sprintf("%s at statement %d of %s", fault.Name, n, name)
				truthful(t, what, applied, err)
				switch want, known := errorsOf[fault.Commit]; {
				case !hit, fault.Commit == faultdriver.RolledBack:
					require.NoError(t, err, what)
				case !deciding:
					require.NotErrorIs(t, err, sqlstore.ErrUncertain, "%s: nothing was committed for sure", what)
				case known:
					require.ErrorIs(t, err, want, what)
				case name == "one statement": // refused: COMMIT knows of no refusal
					require.Error(t, err, what)
					require.NotErrorIs(t, err, sqlstore.ErrUncertain, what)
				}
			}
		}
	}
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
			for _, fault := range faultdriver.TiDBFaults() {
				if !fault.Retryable {
					continue
				}
				struck := 0
				strike := func(times int) {
					struck = 0
					b.faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
						if setup(s) || s.Kind != faultdriver.Query || struck == times {
							return faultdriver.Fault{}
						}
						struck++
						return fault.Fault
					})
				}
				strike(3)
				require.NoError(t, read(t.Context(), b.store), fault.Name)
				require.Equal(t, 3, struck, fault.Name)

				strike(-1)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				err := read(ctx, b.store)
				cancel()
				require.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sqlstore.ErrUnavailable), err)
				require.Less(t, struck, 6, "the pauses are longer than the caller's time")
				b.faults.Set(nil)
			}
			n := 0
			b.faults.Set(func(faultdriver.Statement) faultdriver.Fault {
				n++
				return faultdriver.Fault{Before: &mysql.MySQLError{Number: 9005, Message: "Region is unavailable"}}
			})
			require.ErrorIs(t, read(t.Context(), b.store), sqlstore.ErrUnavailable)
			require.Less(t, n, 20)
		})
	}
}
