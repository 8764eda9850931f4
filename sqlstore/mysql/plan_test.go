package mysql

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

// plan is a line of what a TiDB explains.
type plan struct {
	ID     string `db:"id"`
	Task   string `db:"task"`
	Access string `db:"access object"`
	Info   string `db:"operator info"`
}

// TestNoStatementScansTheTableOnTiDB needs a TiDB: nothing else plans as it does.
func TestNoStatementScansTheTableOnTiDB(t *testing.T) {
	t.Parallel()
	if !enginetest.OnTiDB() {
		t.Skip(enginetest.EnvTiDB + " is not set")
	}
	s := openURL(t, enginetest.Database(t), sqlstore.Options{})
	if s.Info().Product != productTiDB {
		t.Fatalf("%s names a %s", enginetest.EnvTiDB, s.Info().Product)
	}
	lo, hi := sqldbtest.FillPlans(t, s)
	statements := (*engine)(nil).Statements(s.Info())
	// Without statistics: a table that was just filled has none.
	for text, args := range sqldbtest.Plans(statements, lo, hi) {
		var rows []plan
		if err := s.Database().Write().Unsafe().Select(&rows, "EXPLAIN "+text, args...); err != nil {
			t.Fatalf("EXPLAIN %.80s: %v", text, err)
		}
		for _, row := range rows {
			if strings.Contains(row.ID, "FullScan") || strings.Contains(row.ID, "Sort_") ||
				strings.Contains(row.ID, "HashJoin") {
				t.Errorf("%.80s: %+v", text, row)
			}
		}
		if len(rows) == 0 {
			t.Errorf("%.80s: no plan", text)
		}
		aggregates := func(row plan) bool { return strings.Contains(row.ID, "Agg_") && row.Task == "cop[tikv]" }
		if text == statements.Count && !slices.ContainsFunc(rows, aggregates) {
			t.Errorf("%.80s: the rows are not counted where they are: %+v", text, rows)
		}
	}
}

func TestNoStatementScansTheTableOnMySQL(t *testing.T) {
	t.Parallel()
	if enginetest.OnTiDB() {
		t.Skip("TiDB explains otherwise")
	}
	onServers(t, func(t *testing.T, p enginetest.Product) {
		noStatementScansTheTable(t, openURL(t, p.Database(t), sqlstore.Options{}))
	})
}

func noStatementScansTheTable(t *testing.T, s *sqldb.Store) {
	lo, hi := sqldbtest.FillPlans(t, s)
	statements := (*engine)(nil).Statements(s.Info())
	if _, err := s.Database().Write().Exec("ANALYZE TABLE object"); err != nil {
		t.Fatal(err)
	}
	for text, args := range sqldbtest.Plans(statements, lo, hi) {
		var rows []struct {
			Table *string `db:"table"`
			Type  *string `db:"type"`
			Key   *string `db:"key"`
			Extra *string `db:"Extra"`
		}
		if err := s.Database().Write().Unsafe().Select(&rows, "EXPLAIN "+text, args...); err != nil {
			t.Fatalf("EXPLAIN %.80s: %v", text, err)
		}
		for i, row := range rows {
			if row.Table == nil || row.Type == nil || strings.HasPrefix(*row.Table, "<") {
				continue
			}
			join := i == 1 && (text == statements.List || strings.HasPrefix(text, statements.Lookup))
			if *row.Type == "ALL" || *row.Type == "index" || join && *row.Type != "eq_ref" || row.Key == nil ||
				*row.Key != "PRIMARY" {
				t.Errorf("%.80s: table %s is read by %s", text, *row.Table, *row.Type)
			}
			if row.Extra != nil && (strings.Contains(*row.Extra, "filesort") || strings.Contains(*row.Extra, "temporary")) {
				t.Errorf("%.80s: %s", text, *row.Extra)
			}
		}
		if len(rows) == 0 {
			t.Errorf("%.80s: no plan", text)
		}
	}
}

// TestMismatchFailsInEverySQLMode: were it not an error, an upsert would write
// garbage where it should conflict.
func TestMismatchFailsInEverySQLMode(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		s := openURL(t, p.Database(t), sqlstore.Options{})
		ctx := context.Background()
		e := &engine{}
		conn, err := s.Database().Write().Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}()
		versioned := coder.EncodeIndexKey([]byte("m"))
		for _, mode := range []string{"", "STRICT_ALL_TABLES", "ANSI", "NO_UNSIGNED_SUBTRACTION", "NO_BACKSLASH_ESCAPES",
			"TRADITIONAL"} {
			if _, err := conn.ExecContext(ctx, "SET SESSION sql_mode = '"+mode+"'"); err != nil {
				t.Fatal(err)
			}
			for _, ignore := range []int{1, 2} { // the second time prepared
				for _, existing := range [][]byte{{}, {0}, make([]byte, 100)} {
					if _, err := conn.ExecContext(ctx, "REPLACE INTO object VALUES (?, ?), (?, ?)",
						versioned, existing, []byte("plain"),
						existing); err != nil {
						t.Fatal(err)
					}
					for _, key := range [][]byte{versioned, []byte("plain")} {
						value := coder.EncodeIndex(coder.Index{ModRevision: 9, PrevRevision: 8})
						_, err := conn.ExecContext(ctx, e.upserts.text(conditionalTail, 2), []byte("new"), []byte("x"), key, value)
						if err == nil || e.Classify(err) != sqldb.FailureConflict {
							t.Errorf("mode %q, value %x, time %d: %v, want error 1690", mode, existing, ignore, err)
						}
						var n int
						if err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM object WHERE object_value = ? AND "+
							"internal_key IN (?, ?)", existing, versioned, []byte("plain")).Scan(&n); err != nil || n != 2 {
							t.Errorf("mode %q, value %x: %d of 2 rows are as they were, %v", mode, existing, n, err)
						}
					}
				}
			}
		}
		if _, err := conn.ExecContext(ctx, "SET SESSION sql_mode = '"+sqlMode+"'"); err != nil {
			t.Fatal(err)
		}
	})
}
