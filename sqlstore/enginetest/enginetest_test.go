package enginetest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) {
	eventually.NoLeaks(Main(m))
}

func queryString(t *testing.T, url, query string) string {
	t.Helper()
	db, err := open(url)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), connectWait)
	defer cancel()
	var s string
	require.NoError(t, db.QueryRowContext(ctx, query).Scan(&s))
	return s
}

// onProducts runs f for each product that can be started.
func onProducts(t *testing.T, f func(t *testing.T, p Product)) {
	for _, p := range []Product{MariaDB, MySQL} {
		t.Run(string(p), func(t *testing.T) { f(t, p) })
	}
}

func TestEveryDatabaseIsFreshAndDropped(t *testing.T) {
	for _, p := range Products() {
		t.Run(string(p), func(t *testing.T) {
			var first string
			t.Run("one", func(t *testing.T) {
				first = p.Database(t)
				Exec(t, first, "CREATE TABLE object (a INT)", "INSERT INTO object VALUES (1)")
			})
			second := p.Database(t)
			require.NotEqual(t, first, second)
			require.Equal(t, "0", queryString(t, second,
				"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"))
			name := first[strings.LastIndexByte(first, '/')+1:]
			require.Equal(t, "0", queryString(t, second,
				"SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '"+name+"'"))
		})
	}
}

func TestServersAreOfTheirProductAndDurable(t *testing.T) {
	onProducts(t, func(t *testing.T, p Product) {
		s := p.StartServer(t)
		require.Equal(t, p, productNamed(queryString(t, s.URL(), "SELECT VERSION()")))
		require.Equal(t, "1", queryString(t, s.URL(), "SELECT @@innodb_flush_log_at_trx_commit"))
	})
}

func TestServersDoNotShareTemporaryTables(t *testing.T) {
	a, b := StartServer(t), StartServer(t)
	dir := queryString(t, a.URL(), "SELECT @@tmpdir")
	require.Equal(t, a.p.dir.path, dir)
	require.NotEqual(t, dir, queryString(t, b.URL(), "SELECT @@tmpdir"))
}

// forgetGiven makes the environment name no server.
func forgetGiven(t *testing.T) {
	for _, env := range []string{EnvMariaDBURL, EnvMySQLURL, EnvTiDB, EnvTiDBServer} {
		t.Setenv(env, "")
	}
}

func TestNamedServerIsUsed(t *testing.T) {
	onProducts(t, func(t *testing.T, p Product) {
		s := p.StartServer(t)
		t.Run("by tests", func(t *testing.T) {
			forgetGiven(t)
			t.Setenv(p.envURL(), s.URL())
			for _, url := range []string{p.Database(t), Database(t)} {
				require.Equal(t, hostOf(s.URL()), hostOf(url))
				require.NotEqual(t, s.URL(), url)
			}
		})
		t.Run("as what it is", func(t *testing.T) {
			forgetGiven(t)
			other := map[Product]Product{MariaDB: MySQL, MySQL: MariaDB}[p]
			t.Setenv(other.envURL(), s.URL())
			_, err := other.server()
			require.ErrorContains(t, err, "set "+p.envURL())
		})
	})
}

func hostOf(url string) string { return strings.Split(strings.Split(url, "@")[1], "/")[0] }

func TestServerKeepsDataAndAddress(t *testing.T) {
	onProducts(t, func(t *testing.T, p Product) {
		s := p.StartServer(t)
		Exec(t, s.URL(), "CREATE TABLE object (a INT)", "INSERT INTO object VALUES (1)")
		s.Kill()
		s.Start()
		Exec(t, s.URL(), "INSERT INTO object VALUES (1)")
		s.Stop()
		s.Start()
		require.Equal(t, "2", queryString(t, s.URL(), "SELECT COUNT(*) FROM object"))
		other := s.NewDatabase("other")
		require.Equal(t, "0", queryString(t, other,
			"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"))
	})
}

func TestPausedServerDoesNotAnswer(t *testing.T) {
	onProducts(t, func(t *testing.T, p Product) {
		s := p.StartServer(t)
		s.Pause()
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		require.Error(t, execute(ctx, s.URL(), "SELECT 1"))
		s.Resume()
		Exec(t, s.URL(), "SELECT 1")
		s.Pause() // and is killed by the cleanup all the same
	})
}

// noPrograms hides this machine's servers.
func noPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(EnvMariaDB, "")
	t.Setenv(EnvMySQL, "")
	dirs := serverDirs
	t.Cleanup(func() { serverDirs = dirs })
	serverDirs = []string{t.TempDir()}
}

func TestWithoutEngine(t *testing.T) {
	noPrograms(t)
	onProducts(t, func(t *testing.T, p Product) {
		_, err := newInstance(p)
		require.ErrorIs(t, err, ErrNoEngine)
		require.ErrorContains(t, err, string(p)+"-server is its usual package")
		require.ErrorContains(t, err, p.envURL())
	})
}

// A script stands for each program here: it says what it is, and that is all.
func TestProgramIsTheProductsOwn(t *testing.T) {
	noPrograms(t)
	program := func(dir, name, version string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho '"+version+"'\n"), 0o755))
		return path
	}
	const maria, my = "mysqld  Ver 10.11.14-MariaDB for Linux", "mysqld  Ver 9.7.4 for Linux"
	dir := os.Getenv("PATH")
	program(dir, "mysqld", maria) // as Debian's MariaDB has it
	_, err := MySQL.Program()
	require.ErrorIs(t, err, ErrNoEngine)
	path, err := MariaDB.Program()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "mysqld"), path)
	require.Equal(t, MariaDB, local())

	other := program(serverDirs[0], "mysqld", my)
	path, err = MySQL.Program()
	require.NoError(t, err)
	require.Equal(t, other, path, "the first of that name is not a MySQL")

	named := program(t.TempDir(), "any-name", my)
	t.Setenv(EnvMySQL, named)
	path, err = MySQL.Program()
	require.NoError(t, err)
	require.Equal(t, named, path)
	for _, wrong := range []string{filepath.Join(dir, "mysqld"), filepath.Join(dir, "none")} {
		t.Setenv(EnvMySQL, wrong)
		_, err = MySQL.Program()
		require.ErrorContains(t, err, EnvMySQL)
		require.NotErrorIs(t, err, ErrNoEngine, "what was named wrongly must not be skipped")
	}

	require.NoError(t, os.Remove(filepath.Join(dir, "mysqld")))
	t.Setenv(EnvMySQL, named)
	require.Equal(t, MySQL, local())
}

// recorder notes how a test that uses it would have ended.
type recorder struct {
	testing.TB
	outcome string
}

func (r *recorder) Helper()      {}
func (r *recorder) Skip(...any)  { r.outcome += "skip " }
func (r *recorder) Fatal(...any) { r.outcome += "fatal " }

func TestMissingEngineSkipsUnlessRequired(t *testing.T) {
	for _, c := range []struct {
		name, require string
		err           error
		first         string
	}{
		{"missing", "", ErrNoEngine, "skip"},
		{"missing but required", "1", ErrNoEngine, "fatal"},
		{"does not start", "", os.ErrPermission, "fatal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(EnvRequire, c.require)
			r := &recorder{TB: t}
			Need(r, c.err, ErrNoEngine)
			// Skip and Fatal do not return on a real test: only the first counts.
			require.Equal(t, c.first, strings.Fields(r.outcome)[0])
		})
	}
}

func TestGivenServer(t *testing.T) {
	forgetGiven(t)
	for _, c := range []struct {
		product   Product
		raw, want string
	}{
		{MySQL, "", ""},
		{MySQL, "mysql://u@h:3306/", "mysql://u@h:3306/"},
		{MariaDB, "mysql://u@h:3306/", "mysql://u@h:3306/"},
		{tidb, "tidb://u:p@h2/", "mysql://u:p@h2:4000/"},
		{tidb, "tidb://u:p@h2:4001/", "mysql://u:p@h2:4001/"},
		{tidb, "mysql://u:p@h2/", "mysql://u:p@h2/"},
	} {
		t.Setenv(c.product.envURL(), c.raw)
		u, err := c.product.given()
		require.NoError(t, err)
		require.Equal(t, c.want, u)
	}
	for _, p := range []Product{MariaDB, MySQL, tidb} {
		t.Setenv(p.envURL(), "h2:4000")
		_, err := p.given()
		require.ErrorContains(t, err, p.envURL())
	}
	t.Setenv(EnvMySQLURL, "tidb://u@h/")
	_, err := MySQL.given()
	require.ErrorContains(t, err, EnvMySQLURL)
}

func TestGivenServersComeFirst(t *testing.T) {
	forgetGiven(t)
	require.False(t, ServerGiven())
	require.Equal(t, []Product{MariaDB, MySQL}, Products())
	for _, p := range []Product{MySQL, MariaDB, tidb} { // each goes before those before it
		t.Setenv(p.envURL(), "mysql://u@h/")
		require.Equal(t, p, Any())
		require.True(t, ServerGiven())
	}
	require.Equal(t, []Product{tidb}, Products())
}

// Two tests must not be given one port between choosing it and listening on it.
func TestFreePortIsGivenOnce(t *testing.T) {
	seen := map[int]bool{}
	for range 1000 {
		port := FreePort(t)
		if seen[port] {
			t.Fatalf("port %d was given twice", port)
		}
		seen[port] = true
	}
}
