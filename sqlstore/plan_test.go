package sqlstore

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// openTest is for tests that look inside.
// onProducts runs f on each product of a database server.
func onProducts(t *testing.T, f func(t *testing.T, p enginetest.Product)) {
	for _, p := range enginetest.Products() {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			f(t, p)
		})
	}
}

func openTest(t testing.TB, raw string) *DBStore {
	t.Helper()
	ctx := context.Background()
	u, err := ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	db, err := OpenDB(u, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(ctx, db.DialectName(), db.SQL()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, u, Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestRowLayout(t *testing.T) {
	t.Parallel()
	at := func(value []byte, place string) []byte {
		var from, n int
		if _, err := fmt.Sscanf(place, "%d,%d", &from, &n); err != nil {
			t.Fatal(err)
		}
		return value[from-1 : from-1+n]
	}
	const mark, prev = 0x0102030405060708, 0x1112131415161718
	live := coder.EncodeIndex(coder.Index{ModRevision: mark, PrevRevision: prev, Gap: true})
	dead := coder.EncodeIndex(coder.Index{ModRevision: mark, PrevRevision: prev, Gap: true, Tombstone: true})
	if string(at(live, markAt)) != "\x01\x02\x03\x04\x05\x06\x07\x08" || string(at(live, prevMarkAt)) != "\x11\x12\x13\x14\x15\x16\x17\x18" {
		t.Errorf("marks are not where SQL looks for them: %x", live)
	}
	for i := range live {
		if live[i] != dead[i] && (string(at(dead, flagsAt)) != string(dead[i:i+1]) || live[i]&1 != 0 || dead[i] != live[i]|1) {
			t.Errorf("the tombstone flag is not where SQL looks for it: %x", dead)
		}
	}
	if chain := coder.EncodeChain(coder.Chain{Sequence: 3, Term: mark, Revision: 5}); string(at(chain, termAt)) != "\x01\x02\x03\x04\x05\x06\x07\x08" {
		t.Errorf("the term is not where SQL looks for it: %x", chain)
	}
	if key := fmt.Sprintf("x'%x'", coder.ChainKey()); key != chainKey {
		t.Errorf("the chain row's key is %s, SQL looks for %s", key, chainKey)
	}
	raw := []byte("k\x00y")
	index, version := coder.EncodeIndexKey(raw), coder.EncodeVersionKey(raw, mark)
	computed := fmt.Sprintf("x'%x'", version[:4])
	if computed != versionMagic || string(version[4:]) != string(index[4:len(index)-8])+string(at(live, markAt)) {
		t.Errorf("version key %x is not made of index key %x as SQL does it", version, index)
	}
}

// fillPlans writes enough rows for an optimizer to have a choice.
func fillPlans(t *testing.T, s *DBStore) (lo, hi []byte) {
	t.Helper()
	b := s.BeginBatchWrite()
	for i := range 3000 {
		raw := fmt.Appendf(nil, "/registry/pods/%05d", i)
		for rev := int64(1); rev <= 3; rev++ {
			b.PutIfNotExist(coder.EncodeVersionKey(raw, rev), coder.EncodeVersion(&coder.Record{Key: raw, ModRevision: rev, Value: make([]byte, 100)}))
		}
		b.PutIfNotExist(coder.EncodeIndexKey(raw), coder.EncodeIndex(coder.Index{ModRevision: 3}))
	}
	if err := b.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	return coder.IndexBounds([]byte("/registry/pods/00100"), []byte("/registry/pods/02900"))
}

// plans are the statements whose cost must not grow with the table.
func plans(s *DBStore, lo, hi []byte) map[string][]any {
	one := s.texts.floor
	many, args := inList("SELECT internal_key, object_value FROM object WHERE internal_key IN ", make([][]byte, inKeys))
	deletes, _ := inList("DELETE FROM object WHERE internal_key IN ", make([][]byte, inKeys))
	for i := range args {
		args[i] = coder.EncodeIndexKey(fmt.Appendf(nil, "/registry/pods/%05d", 5*i))
	}
	return map[string][]any{
		s.texts.list:                   {lo, hi, 500},
		s.texts.listKeys:               {lo, hi, 500},
		s.texts.count:                  {lo[:8], lo[:8], lo, hi},
		skipText:                       {lo, hi, 500},
		iterText(Range{}):              {lo, hi, 500},
		iterText(Range{Reverse: true}): {lo, hi, 500},
		one + " UNION ALL " + one:      {1, lo, hi, 2, lo, hi},
		many:                           args,
		deletes:                        args,
	}
}

// TestNoStatementScansTheTableOnTiDB needs a TiDB: nothing else plans as it does.
func TestNoStatementScansTheTableOnTiDB(t *testing.T) {
	t.Parallel()
	if !enginetest.OnTiDB() {
		t.Skip(enginetest.EnvTiDB + " is not set")
	}
	s := openTest(t, enginetest.Database(t))
	if s.info.Product != productTiDB {
		t.Fatalf("%s names a %s", enginetest.EnvTiDB, s.info.Product)
	}
	lo, hi := fillPlans(t, s)
	// Without statistics: a table that was just filled has none.
	for text, args := range plans(s, lo, hi) {
		var rows []struct {
			ID     string `db:"id"`
			Access string `db:"access object"`
			Info   string `db:"operator info"`
		}
		if err := s.db.write.Unsafe().Select(&rows, "EXPLAIN "+text, args...); err != nil {
			t.Fatalf("EXPLAIN %.80s: %v", text, err)
		}
		for _, row := range rows {
			if strings.Contains(row.ID, "FullScan") || strings.Contains(row.ID, "Sort_") || strings.Contains(row.ID, "HashJoin") {
				t.Errorf("%.80s: %+v", text, row)
			}
		}
		if len(rows) == 0 {
			t.Errorf("%.80s: no plan", text)
		}
	}
}

func TestNoStatementScansTheTableOnMySQL(t *testing.T) {
	t.Parallel()
	if enginetest.OnTiDB() {
		t.Skip("TiDB explains otherwise")
	}
	onProducts(t, func(t *testing.T, p enginetest.Product) { noStatementScansTheTable(t, openTest(t, p.Database(t))) })
}

func noStatementScansTheTable(t *testing.T, s *DBStore) {
	lo, hi := fillPlans(t, s)
	if _, err := s.db.write.Exec("ANALYZE TABLE object"); err != nil {
		t.Fatal(err)
	}
	for text, args := range plans(s, lo, hi) {
		var rows []struct {
			Table *string `db:"table"`
			Type  *string `db:"type"`
			Key   *string `db:"key"`
			Extra *string `db:"Extra"`
		}
		if err := s.db.write.Unsafe().Select(&rows, "EXPLAIN "+text, args...); err != nil {
			t.Fatalf("EXPLAIN %.80s: %v", text, err)
		}
		for i, row := range rows {
			if row.Table == nil || row.Type == nil || strings.HasPrefix(*row.Table, "<") {
				continue
			}
			join := text == s.texts.list && i == 1
			if *row.Type == "ALL" || *row.Type == "index" || join && *row.Type != "eq_ref" || row.Key == nil || *row.Key != "PRIMARY" {
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

func TestNoStatementScansTheTableOnSQLite(t *testing.T) {
	t.Parallel()
	s := openTest(t, "sqlite://"+filepath.Join(t.TempDir(), "db"))
	lo, hi := fillPlans(t, s)
	texts := plans(s, lo, hi)
	for _, text := range []string{sqliteInsert, sqlitePut, sqliteSwapOrPut, sqliteSwap, sqliteDelete, sqliteDeleteIf} {
		texts[text] = []any{lo, lo, lo}[:strings.Count(text, "?")]
	}
	for text, args := range texts {
		var rows []struct {
			Detail string `db:"detail"`
		}
		if err := s.db.write.Unsafe().Select(&rows, "EXPLAIN QUERY PLAN "+text, args...); err != nil {
			t.Fatalf("EXPLAIN %.80s: %v", text, err)
		}
		for _, row := range rows {
			if strings.HasPrefix(row.Detail, "SCAN object") || strings.HasPrefix(row.Detail, "SCAN i") || strings.HasPrefix(row.Detail, "SCAN v") || strings.Contains(row.Detail, "TEMP B-TREE") || strings.Contains(row.Detail, "AUTOMATIC") {
				t.Errorf("%.80s: %s", text, row.Detail)
			}
		}
		if text == s.texts.list && (len(rows) != 2 || !strings.Contains(rows[1].Detail, "SEARCH v USING INDEX sqlite_autoindex_object_1 (internal_key=?)")) {
			t.Errorf("the join of a list: %+v", rows)
		}
	}
}

// TestMismatchFailsInEverySQLMode: were it not an error, an upsert would write
// garbage where it should conflict.
func TestMismatchFailsInEverySQLMode(t *testing.T) {
	t.Parallel()
	onProducts(t, func(t *testing.T, p enginetest.Product) {
		s := openTest(t, p.Database(t))
		ctx := context.Background()
		d := s.db.dialect.(*mysqlDialect)
		conn, err := s.db.write.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}()
		marked := coder.EncodeIndexKey([]byte("m"))
		for _, mode := range []string{"", "STRICT_ALL_TABLES", "ANSI", "NO_UNSIGNED_SUBTRACTION", "NO_BACKSLASH_ESCAPES", "TRADITIONAL"} {
			if _, err := conn.ExecContext(ctx, "SET SESSION sql_mode = '"+mode+"'"); err != nil {
				t.Fatal(err)
			}
			for _, ignore := range []int{1, 2} { // the second time prepared
				for _, existing := range [][]byte{{}, {0}, make([]byte, 100)} {
					if _, err := conn.ExecContext(ctx, "REPLACE INTO object VALUES (?, ?), (?, ?)", marked, existing, []byte("plain"), existing); err != nil {
						t.Fatal(err)
					}
					for _, key := range [][]byte{marked, []byte("plain")} {
						value := coder.EncodeIndex(coder.Index{ModRevision: 9, PrevRevision: 8})
						_, err := conn.ExecContext(ctx, d.upserts.text(conditionalTail, 2), []byte("new"), []byte("x"), key, value)
						if err == nil || d.classify(err) != failureConflict {
							t.Errorf("mode %q, value %x, time %d: %v, want error 1690", mode, existing, ignore, err)
						}
						var n int
						if err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM object WHERE object_value = ? AND internal_key IN (?, ?)", existing, marked, []byte("plain")).Scan(&n); err != nil || n != 2 {
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
