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
	u, err := url.Parse(raw)
	require.NoError(t, err)
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.DBName, cfg.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	ctx := context.Background()
	var dirty int
	for n := 1; ; n++ {
		base, err := mysql.NewConnector(cfg)
		require.NoError(t, err)
		faults := faultdriver.New()
		db := sql.OpenDB(faults.Wrap(base))
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
