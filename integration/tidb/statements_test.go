package tidb

import (
	"context"
	"database/sql/driver"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pingcap/tidb/pkg/parser"
	"github.com/pingcap/tidb/pkg/parser/ast"
	_ "github.com/pingcap/tidb/pkg/parser/test_driver" // the values of literals

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

func TestMain(m *testing.M) { eventually.NoLeaks(enginetest.Main(m)) }

// expected are the kinds of statements there are: without one of these the
// collection is not what it should be.
var expected = []string{
	// Sessions, and what is asked of a server.
	`^SET SESSION autocommit = 1 .*transaction_isolation = 'READ-COMMITTED'.* sql_mode = .*/\*T! , tidb_txn_mode = 'pessimistic'.*/\*T! , tidb_guarantee_linearizability = 'ON'`,
	`^SET SESSION autocommit = 1 /\*M!100600 , wsrep_sync_wait = 1`,
	`^SHOW VARIABLES WHERE Variable_name IN`,
	`^SELECT @@GLOBAL\.read_only, @@GLOBAL\.innodb_read_only, @@server_id`,
	`information_schema\.tables WHERE table_schema = DATABASE\(\) AND table_name = 'object'$`,
	`(?s)^SELECT column_name AS name.* information_schema\.columns`,
	// Reads.
	`^SELECT object_value FROM object WHERE internal_key = \?$`,
	`^SELECT internal_key, object_value FROM object WHERE internal_key IN \(\?`,
	`^SELECT i\.internal_key.* LEFT JOIN object`,
	`^SELECT /\*\+ INL_JOIN\(v\) \*/ i\.internal_key.* LEFT JOIN object`,
	`^SELECT internal_key, object_value FROM object .*ORDER BY internal_key LIMIT \?$`,
	`^SELECT COALESCE\(SUM\(SUBSTRING`,
	`^\(SELECT \? AS n, .* UNION ALL \(SELECT \? AS n`,
	`ORDER BY internal_key ASC LIMIT \?$`,
	`ORDER BY internal_key DESC LIMIT \?$`,
	`^SELECT internal_key FROM object .*ORDER BY`,
	`^SELECT TIMESTAMPDIFF`,
	`^SET TRANSACTION ISOLATION LEVEL REPEATABLE READ$`,
	`^START TRANSACTION WITH CONSISTENT SNAPSHOT$`,
	`^SHOW TABLE object REGIONS$`,
	// Commits.
	`^INSERT INTO object .* VALUES \(\?,\?\)(,\(\?,\?\))* ON DUPLICATE KEY UPDATE object_value = IF\(`,
	`^INSERT INTO object .* VALUES \(\?,\?\)(,\(\?,\?\))* ON DUPLICATE KEY UPDATE object_value = VALUES`,
	`^INSERT INTO object .* VALUES \(\?,\?\)(,\(\?,\?\))*$`,
	`^SELECT internal_key, object_value FROM object WHERE internal_key IN .* FOR UPDATE$`,
	`^UPDATE object SET object_value = \? WHERE internal_key = \? AND object_value = \?$`,
	`^DELETE FROM object WHERE internal_key IN`,
	`^START TRANSACTION$`, `^COMMIT$`, `^ROLLBACK$`,
	// Space. OPTIMIZE TABLE goes past the collector, and never to a TiDB.
	`data_free`, `information_schema_stats_expiry`, `^SELECT VERSION\(\)$`,
	// Migrations, golang-migrate's own statements among them.
	`(?s)CREATE TABLE object \(`, `^DROP TABLE object`, `GET_LOCK`, `RELEASE_LOCK`, `(?i)CREATE TABLE .*schema_migrations`,
	`(?i)INSERT INTO .schema_migrations`, `(?i)(TRUNCATE|DELETE FROM) .?schema_migrations`, `SELECT version, dirty FROM`,
	`^SET SESSION /\*T! tidb_skip_isolation_level_check = 'ON', \*/ lock_wait_timeout`,
	// The program's doctor.
	`^SHOW SESSION VARIABLES$`, `^SHOW SESSION STATUS LIKE 'Ssl_cipher'$`, `^CREATE TABLE sqlbrain_doctor_probe LIKE`,
	`^SELECT object_value FROM object WHERE 1 = 0$`, `^INSERT INTO object .* SELECT`, `^UPDATE object SET`,
	`^DELETE FROM object WHERE 1 = 0$`,
	`^SELECT CAST\(UTC_TIMESTAMP`, `(?s)^SELECT COUNT\(\*\), COALESCE\(MAX\(TABLE_ROWS\)`,
	`^SHOW GLOBAL STATUS LIKE 'Threads_connected'$`,
}

// fewest is well below the shapes there are, and far above what a collector sees
// that has lost its way to the statements.
const fewest = 60

func TestEveryStatementParses(t *testing.T) {
	var c collection
	t.Run("storage suite", func(t *testing.T) { c.suite(t, nil) })
	t.Run("storage suite as on TiDB", func(t *testing.T) {
		c.suite(t, (&enginetest.TiDB{Regions: []string{"t_104_"}}).Wrap)
	})
	t.Run("migrations", c.migrations)
	t.Run("program", c.program)
	if t.Failed() || t.Skipped() {
		return
	}
	if c.seen == 0 {
		t.Skip("no engine")
	}
	t.Logf("%d statements of %d shapes", c.seen, len(c.text))
	if len(c.text) < fewest {
		t.Errorf("only %d shapes of statements, at least %d are known", len(c.text), fewest)
	}
	texts := make([]string, 0, len(c.text))
	for _, text := range c.text {
		texts = append(texts, text)
	}
	slices.Sort(texts)
	for _, pattern := range expected {
		re := regexp.MustCompile(pattern)
		if !slices.ContainsFunc(texts, re.MatchString) {
			t.Errorf("no statement is like %s", pattern)
		}
	}
	p := parser.New()
	for _, text := range texts {
		nodes, warnings, err := p.ParseSQL(text)
		switch {
		case err != nil:
			t.Errorf("TiDB does not parse %.300q: %v", text, err)
		case len(warnings) > 0:
			t.Errorf("TiDB warns of %.300q: %v", text, warnings)
		case len(nodes) != 1:
			t.Errorf("%d statements in %.300q", len(nodes), text)
		default:
			understood(t, text, nodes[0])
		}
	}
}

// understood checks what is written in comments that TiDB alone reads.
func understood(t *testing.T, text string, node ast.StmtNode) {
	t.Helper()
	switch n := node.(type) {
	case *ast.CreateTableStmt:
		if n.Table.Name.O != "object" {
			return
		}
		if len(n.Constraints) != 1 || n.Constraints[0].Option == nil ||
			n.Constraints[0].Option.PrimaryKeyTp != ast.PrimaryKeyTypeClustered {
			t.Errorf("the primary key is not clustered to TiDB: %s", text)
		}
	case *ast.SetStmt:
		isolation(t, text, n)
		read := 0
		for _, v := range n.Variables {
			if strings.HasPrefix(v.Name, "tidb_") && !v.IsGlobal {
				read++
			}
		}
		if written := strings.Count(text, "tidb_"); read != written {
			t.Errorf("TiDB reads %d of its %d settings: %s", read, written, text)
		}
	case *ast.SelectStmt:
		if strings.Contains(text, "/*+") && (len(n.TableHints) != 1 || n.TableHints[0].HintName.L != "inl_join") {
			t.Errorf("TiDB does not read the hint: %s", text)
		}
	}
}

// isolation checks that an isolation level TiDB does not have is asked for only
// where sessions say that it may be taken for another one: by golang-migrate.
func isolation(t *testing.T, text string, n *ast.SetStmt) {
	t.Helper()
	for _, v := range n.Variables {
		level, ok := v.Value.(ast.ValueExpr)
		if !ok || !strings.Contains(v.Name, "isolation") || v.Name == "tidb_skip_isolation_level_check" {
			continue
		}
		if s := level.GetString(); s != "READ-COMMITTED" && s != "REPEATABLE-READ" &&
			text != "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE" {
			t.Errorf("TiDB refuses the isolation level of %s", text)
		}
	}
}

// suite collects what the storage suite sends. disguise may be nil.
func (c *collection) suite(t *testing.T, disguise func(driver.Connector) driver.Connector) {
	storetest.Run(t, func(t testing.TB) sqlstore.Store {
		faults := faultdriver.New()
		faults.Set(c.plan)
		wrap := faults.Wrap
		if disguise != nil {
			// The other way round, what the disguise answers itself would not be seen.
			wrap = func(base driver.Connector) driver.Connector { return faults.Wrap(disguise(base)) }
		}
		return sqldbtest.Opener(engines.OpenDB).Store(t, enginetest.Database(t), sqlstore.Options{WrapConnector: wrap})
	})
}

// migrations collects what the migrations and the stock tool's driver send.
func (c *collection) migrations(t *testing.T) {
	faults := faultdriver.New()
	faults.Set(c.plan)
	db, err := engines.OpenDB(sqldbtest.Parse(t, enginetest.Database(t)), sqlstore.Options{WrapConnector: faults.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []func() error{
		func() error { return migrations.Up(context.Background(), db.DialectName(), db.SQL()) },
		func() error { return migrations.Verify(context.Background(), db.DialectName(), db.SQL()) },
		func() error { return migrations.Down(context.Background(), db.DialectName(), db.SQL()) },
		func() error { return migrations.Up(context.Background(), db.DialectName(), db.SQL()) },
		func() error { return migrations.Force(context.Background(), db.DialectName(), db.SQL(), 1) },
		db.Close,
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
}

// program collects from the server's own log what the program's commands send.
func (c *collection) program(t *testing.T) {
	server := enginetest.StartServer(t)
	path := filepath.Join(t.TempDir(), "sqlbrain")
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = filepath.Join("..", "..")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("go", "build", "-o", path, "./cmd/sqlbrain")
	log := server.GeneralLog()
	for _, args := range [][]string{{"migrate", "up"}, {"migrate", "version"}, {"doctor"}, {"migrate", "force", "1"},
		{"migrate", "down", "--yes"}} {
		run(path, append(args, "--datastore", server.URL())...)
	}
	if _, err := os.Stat(log); err != nil {
		t.Fatal(err)
	}
	if n := c.addLog(t, log); n < 50 {
		t.Errorf("the server logged %d statements only", n)
	}
}
