package sqldbtest

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Opener is a function that makes the pools of a database: the OpenDB of an engine, or of
// package engines.
type Opener func(*sqlstore.URL, sqlstore.Options) (*sqldb.Database, error)

// Parse parses a URL.
func Parse(t testing.TB, raw string) *sqlstore.URL {
	t.Helper()
	u, err := sqlstore.ParseURL(raw)
	require.NoError(t, err)
	return u
}

// Open opens a store on a database that has the table.
func (open Opener) Open(ctx context.Context, u *sqlstore.URL, o sqlstore.Options) (*sqldb.Store, error) {
	db, err := open(u, o)
	if err != nil {
		return nil, err
	}
	return sqldb.Open(ctx, db, o)
}

// Migrate applies the migrations to a database.
func (open Opener) Migrate(t testing.TB, raw string) {
	t.Helper()
	db, err := open(Parse(t, raw), sqlstore.Options{})
	require.NoError(t, err)
	require.NoError(t, migrations.Up(context.Background(), db.DialectName(), db.SQL()))
	require.NoError(t, db.Close())
}

// Store applies the migrations and opens a store, which is closed when t ends.
func (open Opener) Store(t testing.TB, raw string, o sqlstore.Options) *sqldb.Store {
	t.Helper()
	open.Migrate(t, raw)
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s, err := open.Open(context.Background(), Parse(t, raw), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(), "Close") })
	return s
}

// SQLiteURL returns the URL of an SQLite file that does not exist yet.
func SQLiteURL(t testing.TB) string {
	return "sqlite://" + filepath.Join(t.TempDir(), "new", "test.db")
}

// Databases returns, by the name of each engine, what makes an empty database on it
// without the table, and returns its URL.
func Databases() map[string]func(testing.TB) string {
	all := map[string]func(testing.TB) string{"sqlite": SQLiteURL}
	for _, p := range enginetest.Products() {
		all[string(p)] = p.Database
	}
	return all
}

// OnEngines runs f on each engine, in parallel: an engine mostly waits for its disk.
func OnEngines(t *testing.T, f func(t *testing.T, database func(testing.TB) string)) {
	for name, database := range Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, database)
		})
	}
}

// OnServers runs f on each product of a database server, in parallel.
func OnServers(t *testing.T, f func(t *testing.T, p enginetest.Product)) {
	for _, p := range enginetest.Products() {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			f(t, p)
		})
	}
}
