package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/mysql"
	_ "github.com/golang-migrate/migrate/v4/database/sqlite"
	_ "github.com/golang-migrate/migrate/v4/source/file"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// golang-migrate leaves the goroutine that reads a file behind if the version
// cannot be recorded before the file is run. A process that cannot migrate ends.
func TestMain(m *testing.M) {
	eventually.NoLeaks(enginetest.Main(m), goleak.IgnoreAnyFunction(
		"github.com/golang-migrate/migrate/v4.(*Migration).Buffer"))
}

// target is one empty database.
type target struct {
	dialect  string
	stockURL string         // as the stock tool takes it
	open     func() *sql.DB // a pool of its own, as another process would have
}

func (g target) up(t *testing.T, db *sql.DB) {
	t.Helper()
	require.NoError(t, migrations.Up(t.Context(), g.dialect, db))
}

func (g target) verify(db *sql.DB) error {
	return migrations.Verify(context.Background(), g.dialect, db)
}

// onEveryEngine runs claim on a fresh database of each engine.
func onEveryEngine(t *testing.T, claim func(t *testing.T, g target)) {
	t.Run("sqlite", func(t *testing.T) { claim(t, sqliteTarget(t)) })
	onEveryServer(t, claim)
}

// onEveryServer runs claim on a fresh database of each product of a server.
func onEveryServer(t *testing.T, claim func(t *testing.T, g target)) {
	for _, p := range enginetest.Products() {
		t.Run(string(p), func(t *testing.T) { claim(t, mysqlTarget(t, p)) })
	}
}

func sqliteTarget(t *testing.T) target {
	path := filepath.Join(t.TempDir(), "test.db")
	return target{"sqlite", "sqlite://" + path, opener(t, "sqlite", path)}
}

func mysqlTarget(t *testing.T, p enginetest.Product) target {
	u, err := url.Parse(p.Database(t))
	require.NoError(t, err)
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.DBName, cfg.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	stock := "mysql://" + cfg.FormatDSN()
	if !p.Can(enginetest.Serializable) { // which the tool asks for; its lock suffices
		stock += "?tidb_skip_isolation_level_check=1"
	}
	return target{"mysql", stock, opener(t, "mysql", cfg.FormatDSN())}
}

func opener(t *testing.T, driver, dsn string) func() *sql.DB {
	return func() *sql.DB {
		db, err := sql.Open(driver, dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}
}

func exec(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := db.Exec(s)
		require.NoError(t, err, s)
	}
}

func TestUpMakesTheTableAndDownRemovesIt(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, g target) {
		db := g.open()
		require.ErrorIs(t, g.verify(db), migrations.ErrMissing)
		require.ErrorContains(t, g.verify(db), "sqlbrain migrate up --datastore")

		g.up(t, db)
		require.NoError(t, g.verify(db))
		version, dirty, err := migrations.Version(t.Context(), g.dialect, db)
		latest, lerr := migrations.Latest(g.dialect)
		require.NoError(t, errors.Join(err, lerr))
		require.Equal(t, latest, version)
		require.False(t, dirty)

		key, value := make([]byte, 3072), make([]byte, 2<<20)
		_, err = db.Exec("INSERT INTO object (internal_key, object_value) VALUES (?, ?)", key, value)
		require.NoError(t, err)
		g.up(t, db) // again: nothing happens
		var n int
		require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM object WHERE internal_key = ?", key).Scan(&n))
		require.Equal(t, 1, n)

		require.NoError(t, migrations.Down(t.Context(), g.dialect, db))
		require.ErrorIs(t, g.verify(db), migrations.ErrMissing)
		require.ErrorIs(t, migrations.Down(t.Context(), g.dialect, db), migrations.ErrMissing)
		require.Error(t, db.QueryRow("SELECT COUNT(*) FROM object").Scan(&n))
		g.up(t, db)
	})
}

func TestSQLiteRefusesText(t *testing.T) {
	g := sqliteTarget(t)
	db := g.open()
	g.up(t, db)
	_, err := db.Exec("INSERT INTO object VALUES (x'01' || x'02', x'')")
	require.Error(t, err)
}

func TestMySQLTableIsStoredAsAgreed(t *testing.T) {
	for _, p := range enginetest.Products() {
		t.Run(string(p), func(t *testing.T) {
			g := mysqlTarget(t, p)
			db := g.open()
			g.up(t, db)
			var name, ddl string
			require.NoError(t, db.QueryRow("SHOW CREATE TABLE object").Scan(&name, &ddl))
			wants := []string{"ENGINE=InnoDB", "CHARSET=binary", "varbinary(3072) NOT NULL", "mediumblob NOT NULL",
				"PRIMARY KEY (`internal_key`)"}
			if p.Can(enginetest.RowFormat) {
				wants = append(wants, "ROW_FORMAT=DYNAMIC")
			}
			if p.Can(enginetest.ChosenClustering) {
				wants = append(wants, "/*T![clustered_index] CLUSTERED */")
			}
			for _, part := range wants {
				require.Contains(t, ddl, part)
			}
		})
	}
}

func TestManyProcessesMayMigrateAtOnce(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, g target) {
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			db := g.open()
			wg.Go(func() { errs[i] = migrations.Up(context.Background(), g.dialect, db) })
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		require.NoError(t, g.verify(g.open()))
	})
}

func TestUpUsesOneConnectionAndGivesItBack(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, g target) {
		db := g.open()
		db.SetMaxOpenConns(1)
		g.up(t, db)
		require.NoError(t, migrations.Down(t.Context(), g.dialect, db))
		g.up(t, db)
		require.NoError(t, db.Ping())
		require.Zero(t, db.Stats().InUse)
	})
}

func TestForeignTablesAreNotTouched(t *testing.T) {
	cases := map[string][]string{
		"object of another program": {
			"CREATE TABLE object (id INTEGER PRIMARY KEY, name VARCHAR(20))", "INSERT INTO object VALUES (1, 'theirs')"},
		"object that looks like ours, but is collated": {
			"CREATE TABLE object (internal_key VARCHAR(700) PRIMARY KEY, object_value TEXT)",
			"INSERT INTO object VALUES ('k', 'theirs')",
			"CREATE TABLE schema_migrations (version BIGINT NOT NULL PRIMARY KEY, dirty BOOLEAN NOT NULL)",
			"INSERT INTO schema_migrations VALUES (1, FALSE)"},
		"migrations of another program": {
			"CREATE TABLE schema_migrations (version BIGINT NOT NULL PRIMARY KEY, dirty BOOLEAN NOT NULL)",
			"INSERT INTO schema_migrations VALUES (57, FALSE)"},
		"migrations of another tool": {
			"CREATE TABLE schema_migrations (version VARCHAR(250) PRIMARY KEY)",
			"INSERT INTO schema_migrations VALUES ('20240101')"},
	}
	for name, setup := range cases {
		t.Run(name, func(t *testing.T) {
			onEveryEngine(t, func(t *testing.T, g target) {
				db := g.open()
				exec(t, db, setup...)
				before := contents(t, db)
				ctx := t.Context()
				require.ErrorIs(t, g.verify(db), migrations.ErrForeignTable)
				require.ErrorIs(t, migrations.Up(ctx, g.dialect, db), migrations.ErrForeignTable)
				require.ErrorIs(t, migrations.Down(ctx, g.dialect, db), migrations.ErrForeignTable)
				require.ErrorIs(t, migrations.Force(ctx, g.dialect, db, 1), migrations.ErrForeignTable)
				require.Equal(t, before, contents(t, db))
			})
		})
	}
}

// contents describes every row of the tables that a migration could touch.
func contents(t *testing.T, db *sql.DB) map[string][][]any {
	t.Helper()
	out := map[string][][]any{}
	for _, table := range []string{"object", "schema_migrations"} {
		rows, err := db.Query("SELECT * FROM " + table)
		if err != nil {
			continue // no such table, which is compared as well
		}
		cols, err := rows.Columns()
		require.NoError(t, err)
		out[table] = [][]any{}
		for rows.Next() {
			row := make([]any, len(cols))
			for i := range row {
				row[i] = new(string)
			}
			require.NoError(t, rows.Scan(row...))
			out[table] = append(out[table], row)
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
	}
	return out
}

func TestANewerSchemaIsRefused(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, g target) {
		db := g.open()
		g.up(t, db)
		exec(t, db, "UPDATE schema_migrations SET version = 999")
		require.ErrorIs(t, g.verify(db), migrations.ErrNewer)
		require.ErrorIs(t, migrations.Up(t.Context(), g.dialect, db), migrations.ErrNewer)
		require.ErrorIs(t, migrations.Down(t.Context(), g.dialect, db), migrations.ErrNewer)
		require.ErrorIs(t, migrations.Force(t.Context(), g.dialect, db, 1000), migrations.ErrNewer)
	})
}

func TestADirtySchemaIsRefusedUntilForced(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, g target) {
		db := g.open()
		g.up(t, db)
		exec(t, db, "UPDATE schema_migrations SET dirty = TRUE")
		require.ErrorIs(t, g.verify(db), migrations.ErrDirty)
		require.ErrorIs(t, migrations.Up(t.Context(), g.dialect, db), migrations.ErrDirty)
		require.ErrorIs(t, migrations.Down(t.Context(), g.dialect, db), migrations.ErrDirty)
		require.NoError(t, migrations.Force(t.Context(), g.dialect, db, 1))
		require.NoError(t, g.verify(db))
		require.NoError(t, migrations.Up(t.Context(), g.dialect, db))
	})
}

// A migration that fails on SQLite leaves nothing behind, not even the mark.
func TestAFailedSQLiteMigrationIsRolledBack(t *testing.T) {
	g := sqliteTarget(t)
	db := g.open()
	// An index of that name makes CREATE TABLE object fail.
	exec(t, db, "CREATE TABLE other (a INT)", "CREATE INDEX object ON other (a)")
	require.Error(t, migrations.Up(t.Context(), g.dialect, db))
	require.Equal(t, map[string][][]any{}, contents(t, db))
	exec(t, db, "DROP INDEX object")
	g.up(t, db)
}

func TestAnEndedContextIsHonoured(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, g target) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		db := g.open()
		require.ErrorIs(t, migrations.Up(ctx, g.dialect, db), context.Canceled)
		require.ErrorIs(t, g.verify(db), migrations.ErrMissing)
	})
}

// The stock tool works on the folders, and the two read each other's state.
func TestTheStockToolIsInterchangeable(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, g target) {
		dir, err := filepath.Abs(g.dialect)
		require.NoError(t, err)
		stock := func(f func(*migrate.Migrate) error) {
			t.Helper()
			m, err := migrate.New("file://"+dir, g.stockURL)
			require.NoError(t, err)
			require.NoError(t, f(m))
			srcErr, dbErr := m.Close()
			require.NoError(t, errors.Join(srcErr, dbErr))
		}
		db := g.open()
		stock((*migrate.Migrate).Up)
		require.NoError(t, g.verify(db))
		g.up(t, db)
		require.NoError(t, migrations.Down(t.Context(), g.dialect, db))
		stock((*migrate.Migrate).Up)
		stock((*migrate.Migrate).Down)
		require.ErrorIs(t, g.verify(db), migrations.ErrMissing)
		g.up(t, db)
		stock(func(m *migrate.Migrate) error {
			version, dirty, err := m.Version()
			require.EqualValues(t, 1, version)
			require.False(t, dirty)
			require.ErrorIs(t, m.Up(), migrate.ErrNoChange)
			return err
		})
		exec(t, db, "UPDATE schema_migrations SET dirty = TRUE")
		stock(func(m *migrate.Migrate) error {
			require.ErrorAs(t, m.Up(), new(migrate.ErrDirty))
			return m.Force(1)
		})
		require.NoError(t, g.verify(db))
		stock((*migrate.Migrate).Down)
		require.ErrorIs(t, g.verify(db), migrations.ErrMissing)
	})
}

// Every version goes up and down on every engine, with the same numbers.
func TestFilesArePaired(t *testing.T) {
	names := map[string]map[string]bool{}
	for _, dir := range []string{"mysql", "sqlite"} {
		names[dir] = map[string]bool{}
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			names[dir][e.Name()] = true
		}
		for n := range names[dir] {
			require.True(t, names[dir][strings.Replace(n, ".up.", ".down.", 1)], n)
			require.True(t, names[dir][strings.Replace(n, ".down.", ".up.", 1)], n)
		}
	}
	require.Equal(t, names["mysql"], names["sqlite"])
}

func TestUnknownDialect(t *testing.T) {
	require.ErrorIs(t, migrations.Up(t.Context(), "oracle", nil), migrations.ErrDialect)
}
