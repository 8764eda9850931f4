package faultdriver_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

func open(t *testing.T) (*faultdriver.Injector, *sql.DB) {
	t.Helper()
	base, err := sqlite.NewConnector("file:" + filepath.Join(t.TempDir(), "test.db"))
	require.NoError(t, err)
	faults := faultdriver.New()
	db := sql.OpenDB(faults.Wrap(base))
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		require.Zero(t, faults.Conns(), "connections are still open")
	})
	_, err = db.Exec("CREATE TABLE t (x INTEGER)")
	require.NoError(t, err)
	return faults, db
}

func requireRows(t *testing.T, db *sql.DB, want int, what string) {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM t").Scan(&n))
	require.Equal(t, want, n, what)
}

// on returns a plan for the statements of one kind.
func on(kind faultdriver.Kind, f faultdriver.Fault) faultdriver.Plan {
	return func(s faultdriver.Statement) faultdriver.Fault {
		if s.Kind == kind {
			return f
		}
		return faultdriver.Fault{}
	}
}

func TestFaultsHitBeforeOrAfter(t *testing.T) {
	fault := errors.New("fault")
	for name, c := range map[string]struct {
		f       faultdriver.Fault
		written int
	}{
		"before":         {faultdriver.Fault{Before: fault}, 0},
		"after":          {faultdriver.Fault{After: fault}, 1},
		"cut before":     {faultdriver.Fault{Before: fault, Cut: true}, 0},
		"cut after":      {faultdriver.Fault{After: fault, Cut: true}, 1},
		"delayed before": {faultdriver.Fault{Before: fault, Delay: time.Millisecond}, 0},
	} {
		faults, db := open(t)
		prepared, err := db.Prepare("INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		for i, insert := range []func() (sql.Result, error){
			func() (sql.Result, error) { return db.Exec("INSERT INTO t VALUES (1)") },
			func() (sql.Result, error) { return prepared.Exec() },
		} {
			conns := faults.Conns()
			faults.Set(on(faultdriver.Exec, c.f))
			_, err := insert()
			require.ErrorIs(t, err, fault, name)
			require.Equal(t, c.f.Cut, faults.Conns() < conns, name)
			faults.Set(nil)
			requireRows(t, db, (i+1)*c.written, name)
		}
		require.NoError(t, prepared.Close())
	}
}

func TestCutEndsTheTransaction(t *testing.T) {
	for kind, written := range map[faultdriver.Kind]int{faultdriver.Exec: 0, faultdriver.Commit: 1} {
		faults, db := open(t)
		tx, err := db.Begin()
		require.NoError(t, err)
		faults.Set(on(kind, faultdriver.Fault{After: faultdriver.ErrLost, Cut: true}))
		_, execErr := tx.Exec("INSERT INTO t VALUES (1)")
		require.ErrorIs(t, errors.Join(execErr, tx.Commit()), faultdriver.ErrLost)
		faults.Set(nil)
		requireRows(t, db, written, string(kind))
	}
}

func TestHangEndsWithTheContext(t *testing.T) {
	for _, after := range []error{nil, faultdriver.ErrLost} {
		faults, db := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		faults.Set(func(faultdriver.Statement) faultdriver.Fault {
			if after == nil {
				cancel()
			}
			return faultdriver.Fault{Hang: true, After: after, Then: cancel}
		})
		_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
		require.ErrorIs(t, err, context.Canceled)
		faults.Set(nil)
		requireRows(t, db, map[error]int{faultdriver.ErrLost: 1}[after], "executed first if After is set")
	}
}

func TestRowsBreakOff(t *testing.T) {
	faults, db := open(t)
	_, err := db.Exec("INSERT INTO t VALUES (1), (2), (3)")
	require.NoError(t, err)
	faults.Set(on(faultdriver.Query, faultdriver.Fault{Rows: faultdriver.ErrLost, RowsBefore: 2, Cut: true}))
	rows, err := db.Query("SELECT x FROM t")
	require.NoError(t, err)
	n := 0
	for rows.Next() {
		n++
	}
	require.Equal(t, 2, n)
	require.ErrorIs(t, rows.Err(), faultdriver.ErrLost)
	require.NoError(t, rows.Close())
	faults.Set(nil)
	requireRows(t, db, 3, "")
}
