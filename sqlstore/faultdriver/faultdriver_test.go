package faultdriver_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

func open(t *testing.T) (*faultdriver.Injector, *sql.DB) {
	t.Helper()
	base, err := sqlite.NewConnector("file:" + filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	faults := faultdriver.New()
	db := sql.OpenDB(faults.Wrap(base))
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := faults.Conns(); n != 0 {
			t.Errorf("%d connections are still open", n)
		}
	})
	if _, err := db.Exec("CREATE TABLE t (x INTEGER)"); err != nil {
		t.Fatal(err)
	}
	return faults, db
}

func count(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow("SELECT count(*) FROM t").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
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
		t.Run(name, func(t *testing.T) {
			faults, db := open(t)
			conns := faults.Conns()
			faults.Set(on(faultdriver.Exec, c.f))
			if _, err := db.Exec("INSERT INTO t VALUES (1)"); !errors.Is(err, fault) {
				t.Fatalf("error %v, want the fault", err)
			}
			if n := faults.Conns(); n != conns && !c.f.Cut || n == conns && c.f.Cut {
				t.Errorf("%d connections were open, now there are %d", conns, n)
			}
			faults.Set(nil)
			if n := count(t, db); n != c.written {
				t.Errorf("%d rows, want %d", n, c.written)
			}
		})
	}
}

func TestPreparedStatementsAreGovernedToo(t *testing.T) {
	faults, db := open(t)
	s, err := db.Prepare("INSERT INTO t VALUES (?)")
	if err != nil {
		t.Fatal(err)
	}
	faults.Set(on(faultdriver.Exec, faultdriver.Fault{After: faultdriver.ErrLost, Cut: true}))
	if _, err := s.Exec(1); !errors.Is(err, faultdriver.ErrLost) {
		t.Fatalf("error %v, want ErrLost", err)
	}
	faults.Set(nil)
	if _, err := s.Exec(2); err != nil {
		t.Fatalf("on a new connection: %v", err)
	}
	if n := count(t, db); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCutEndsTheTransaction(t *testing.T) {
	for kind, written := range map[faultdriver.Kind]int{faultdriver.Exec: 0, faultdriver.Commit: 1} {
		faults, db := open(t)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		faults.Set(on(kind, faultdriver.Fault{After: faultdriver.ErrLost, Cut: true}))
		_, execErr := tx.Exec("INSERT INTO t VALUES (1)")
		if err := errors.Join(execErr, tx.Commit()); !errors.Is(err, faultdriver.ErrLost) {
			t.Fatalf("error %v, want ErrLost", err)
		}
		faults.Set(nil)
		if n := count(t, db); n != written {
			t.Errorf("cut after %s: %d rows, want %d", kind, n, written)
		}
	}
}

func TestHangEndsWithTheContext(t *testing.T) {
	for _, after := range []error{nil, faultdriver.ErrLost} {
		faults, db := open(t)
		ctx, cancel := context.WithCancel(context.Background())
		faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
			if after == nil {
				cancel()
			}
			return faultdriver.Fault{Hang: true, After: after, Then: cancel}
		})
		if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)"); !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want the context's", err)
		}
		faults.Set(nil)
		if n := count(t, db); (n == 1) != (after != nil) {
			t.Errorf("after %v: %d rows", after, n)
		}
	}
}

func TestRowsBreakOff(t *testing.T) {
	faults, db := open(t)
	if _, err := db.Exec("INSERT INTO t VALUES (1), (2), (3)"); err != nil {
		t.Fatal(err)
	}
	faults.Set(on(faultdriver.Query, faultdriver.Fault{Rows: faultdriver.ErrLost, RowsBefore: 2, Cut: true}))
	rows, err := db.Query("SELECT x FROM t")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for rows.Next() {
		n++
	}
	if n != 2 || !errors.Is(rows.Err(), faultdriver.ErrLost) {
		t.Errorf("%d rows, then %v; want 2 and ErrLost", n, rows.Err())
	}
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
	faults.Set(nil)
	if n := count(t, db); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
}

func TestUnreachable(t *testing.T) {
	faults, db := open(t)
	faults.SetUnreachable(true)
	if _, err := db.Exec("INSERT INTO t VALUES (1)"); !errors.Is(err, faultdriver.ErrLost) {
		t.Fatalf("on an open connection: %v", err)
	}
	if _, err := db.Exec("INSERT INTO t VALUES (1)"); !errors.Is(err, faultdriver.ErrUnreachable) {
		t.Fatalf("dialling: %v", err)
	}
	faults.SetUnreachable(false)
	if n := count(t, db); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
}

func TestStatementsAreCountedAndNamed(t *testing.T) {
	faults, db := open(t)
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	faults.Set(nil)
	for _, text := range []string{"BEGIN IMMEDIATE", "INSERT INTO t VALUES (1)", "ROLLBACK", " begin", "COMMIT"} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	want := []faultdriver.Kind{faultdriver.Begin, faultdriver.Exec, faultdriver.Rollback, faultdriver.Begin,
		faultdriver.Commit}
	for i, s := range faults.Seen() {
		if s.N != i+1 || s.Kind != want[i] {
			t.Errorf("statement %d is %+v, want kind %s", i+1, s, want[i])
		}
	}
}

func TestBadConnIsRetriedByThePool(t *testing.T) {
	faults, db := open(t)
	faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
		if s.N == 1 {
			return faultdriver.Fault{Before: driver.ErrBadConn, Cut: true}
		}
		return faultdriver.Fault{}
	})
	if _, err := db.Exec("INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	faults.Set(nil)
	if n := count(t, db); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}
