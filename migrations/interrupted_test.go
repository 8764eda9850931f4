package migrations_test

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
)

// TestInterruptedMigration loses the connection before and after each statement
// in turn. MySQL commits DDL by itself, so that a schema may be left between two
// versions; then the error says so and how to go on, and that way works.
func TestInterruptedMigration(t *testing.T) {
	for _, p := range enginetest.Products() {
		for name, fault := range map[string]faultdriver.Fault{
			"before": {Before: faultdriver.ErrLost, Cut: true}, "after": {After: faultdriver.ErrLost, Cut: true},
		} {
			t.Run(string(p)+" "+name, func(t *testing.T) {
				t.Parallel()
				migrationThatIsCutOff(t, p.Database(t), fault)
			})
		}
	}
}

func migrationThatIsCutOff(t *testing.T, raw string, fault faultdriver.Fault) {
	ctx := context.Background()
	var dirty int
	for n := 1; ; n++ {
		db, faults := faultyPool(t, raw)
		hit := ""
		faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
			if s.N != n || s.Kind == faultdriver.Connect {
				return faultdriver.Fault{}
			}
			hit = s.Text
			return fault
		})
		upErr := migrations.Up(ctx, "mysql", db)
		last := n > len(faults.Seen())
		faults.Set(nil)
		verifyErr := migrations.Verify(ctx, "mysql", db)
		switch {
		case verifyErr == nil:
		case upErr == nil:
			t.Errorf("lost at %q: Up said nothing, Verify %v", hit, verifyErr)
		default:
			// Whatever is left, the next try either works or says what to do.
			if err := migrations.Up(ctx, "mysql", db); err != nil {
				require.ErrorIs(t, err, migrations.ErrDirty, "lost at %q", hit)
				require.ErrorContains(t, err, "sqlbrain migrate force VERSION --datastore URL")
				dirty++
				made := uint(0)
				if contents(t, db)["object"] != nil {
					made = 1
				}
				require.NoError(t, migrations.Force(ctx, "mysql", db, made))
				require.NoError(t, migrations.Up(ctx, "mysql", db))
			}
			require.NoError(t, migrations.Verify(ctx, "mysql", db))
		}
		exec(t, db, "DROP TABLE IF EXISTS object", "DROP TABLE IF EXISTS schema_migrations")
		require.NoError(t, db.Close())
		if last {
			require.Empty(t, hit)
			require.NoError(t, upErr)
			break
		}
	}
	require.GreaterOrEqual(t, dirty, 2, "before the table is made, and after")
}

// TestUndoneStatementsAreRepeated undoes each statement that uses a table once. Members of a
// Galera that start together see that.
func TestUndoneStatementsAreRepeated(t *testing.T) {
	for _, p := range enginetest.Products() {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			raw := p.Database(t)
			for _, number := range []uint16{1213, 3101, 8005, 8028} {
				for _, change := range []func(context.Context, string, *sql.DB) error{migrations.Up, migrations.Down} {
					db, faults := faultyPool(t, raw)
					undone := map[string]bool{}
					faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
						if undone[s.Text] || !strings.Contains(s.Text, "object") && !strings.Contains(s.Text, "schema_migrations") {
							return faultdriver.Fault{}
						}
						undone[s.Text] = true
						return faultdriver.Fault{Before: &mysql.MySQLError{Number: number, Message: "undone"}}
					})
					require.NoError(t, change(t.Context(), "mysql", db), "%d", number)
					require.GreaterOrEqual(t, len(undone), 5, "statements: %v", faults.Seen())
				}
			}
		})
	}
}

// TestWhatIsUndoneAgainAndAgainIsGivenUp: Up returns the engine's error.
func TestWhatIsUndoneAgainAndAgainIsGivenUp(t *testing.T) {
	for _, p := range enginetest.Products() {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			db, faults := faultyPool(t, p.Database(t))
			faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
				if !strings.Contains(s.Text, "CREATE TABLE object") {
					return faultdriver.Fault{}
				}
				return faultdriver.Fault{Before: &mysql.MySQLError{Number: 1213, Message: "undone"}}
			})
			err := migrations.Up(t.Context(), "mysql", db)
			var e *mysql.MySQLError
			require.ErrorAs(t, err, &e)
			require.EqualValues(t, 1213, e.Number)
		})
	}
}

// faultyPool returns a pool of the database, and what injects faults into it.
func faultyPool(t *testing.T, raw string) (*sql.DB, *faultdriver.Injector) {
	u, err := url.Parse(raw)
	require.NoError(t, err)
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.DBName, cfg.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	base, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	faults := faultdriver.New()
	db := sql.OpenDB(faults.Wrap(base))
	t.Cleanup(func() { _ = db.Close() })
	return db, faults
}
