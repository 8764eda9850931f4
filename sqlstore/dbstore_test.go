package sqlstore_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.Main(m)) }

// engines are the databases that tests of every dialect run on: each call makes
// an empty one without the table.
var engines = func() map[string]func(testing.TB) string {
	all := map[string]func(testing.TB) string{
		"sqlite": func(t testing.TB) string { return "sqlite://" + filepath.Join(t.TempDir(), "new", "test.db") },
	}
	for _, p := range enginetest.Products() {
		all[string(p)] = p.Database
	}
	return all
}()

// onEngines runs f on each engine.
func onEngines(t *testing.T, f func(t *testing.T, database func(testing.TB) string)) {
	for name, database := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // an engine mostly waits for its disk
			f(t, database)
		})
	}
}

// onServers runs f on each product of a database server.
func onServers(t *testing.T, f func(t *testing.T, p enginetest.Product)) {
	for _, p := range enginetest.Products() {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			f(t, p)
		})
	}
}

// openURL applies the migrations and opens the store.
func openURL(t testing.TB, raw string, o sqlstore.Options) *sqlstore.DBStore {
	t.Helper()
	migrate(t, raw)
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s, err := sqlstore.Open(context.Background(), parse(t, raw), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func parse(t testing.TB, raw string) *sqlstore.URL {
	t.Helper()
	u, err := sqlstore.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func migrate(t testing.TB, raw string) {
	t.Helper()
	db, err := sqlstore.OpenDB(parse(t, raw), sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(context.Background(), db.DialectName(), db.SQL()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	onEngines(t, func(t *testing.T, database func(testing.TB) string) {
		storetest.Run(t, func(t testing.TB) sqlstore.Store { return openURL(t, database(t), sqlstore.Options{}) })
	})
}
