package enginetest

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(Main(m))
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

func TestEveryDatabaseIsFreshAndDropped(t *testing.T) {
	var first string
	t.Run("one", func(t *testing.T) {
		first = MySQL(t)
		Exec(t, first, "CREATE TABLE object (a INT)", "INSERT INTO object VALUES (1)")
	})
	second := MySQL(t)
	require.NotEqual(t, first, second)
	require.Equal(t, "0", queryString(t, second, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"))
	name := first[strings.LastIndexByte(first, '/')+1:]
	require.Equal(t, "0", queryString(t, second,
		"SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '"+name+"'"))
}

func TestServersAreDurable(t *testing.T) {
	s := StartServer(t)
	require.Equal(t, "1", queryString(t, s.URL(), "SELECT @@innodb_flush_log_at_trx_commit"))
}

func TestServersDoNotShareTemporaryTables(t *testing.T) {
	a, b := StartServer(t), StartServer(t)
	dir := queryString(t, a.URL(), "SELECT @@tmpdir")
	require.Equal(t, a.p.dir.path, dir)
	require.NotEqual(t, dir, queryString(t, b.URL(), "SELECT @@tmpdir"))
}

func TestNamedServerIsUsed(t *testing.T) {
	s := StartServer(t)
	t.Run("by tests", func(t *testing.T) {
		t.Setenv(EnvURL, s.URL())
		t.Setenv(EnvTiDB, "")
		url := MySQL(t)
		require.Equal(t, hostOf(s.URL()), hostOf(url))
		require.NotEqual(t, s.URL(), url)
	})
}

func hostOf(url string) string { return strings.Split(strings.Split(url, "@")[1], "/")[0] }

func TestServerKeepsDataAndAddress(t *testing.T) {
	s := StartServer(t)
	Exec(t, s.URL(), "CREATE TABLE object (a INT)", "INSERT INTO object VALUES (1)")
	s.Kill()
	s.Start()
	Exec(t, s.URL(), "INSERT INTO object VALUES (1)")
	s.Stop()
	s.Start()
	require.Equal(t, "2", queryString(t, s.URL(), "SELECT COUNT(*) FROM object"))
	other := s.NewDatabase("other")
	require.Equal(t, "0", queryString(t, other, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"))
}

func TestPausedServerDoesNotAnswer(t *testing.T) {
	s := StartServer(t)
	s.Pause()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, execute(ctx, s.URL(), "SELECT 1"))
	s.Resume()
	Exec(t, s.URL(), "SELECT 1")
	s.Pause() // and is killed by the cleanup all the same
}

func TestWithoutEngine(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dirs := serverDirs
	t.Cleanup(func() { serverDirs = dirs })
	serverDirs = []string{t.TempDir()}

	_, err := newProcess()
	require.ErrorIs(t, err, errNoEngine)
	require.ErrorContains(t, err, "apt-get install")
	require.ErrorContains(t, err, EnvURL)
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
		{"missing", "", errNoEngine, "skip"},
		{"missing but required", "1", errNoEngine, "fatal"},
		{"does not start", "", os.ErrPermission, "fatal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(EnvRequire, c.require)
			r := &recorder{TB: t}
			unavailable(r, c.err)
			// Skip and Fatal do not return on a real test: only the first counts.
			require.Equal(t, c.first, strings.Fields(r.outcome)[0])
		})
	}
}

func TestGivenServer(t *testing.T) {
	for _, c := range []struct{ mysql, tidb, want string }{
		{"", "", ""},
		{"mysql://u@h:3306/", "", "mysql://u@h:3306/"},
		{"mysql://u@h:3306/", "tidb://u:p@h2/", "mysql://u:p@h2:4000/"},
		{"", "tidb://u:p@h2:4001/", "mysql://u:p@h2:4001/"},
		{"", "mysql://u:p@h2/", "mysql://u:p@h2/"},
	} {
		t.Setenv(EnvURL, c.mysql)
		t.Setenv(EnvTiDB, c.tidb)
		u, err := givenServer()
		require.NoError(t, err)
		require.Equal(t, c.want, u)
		require.Equal(t, c.tidb != "", OnTiDB())
	}
	t.Setenv(EnvTiDB, "h2:4000")
	_, err := givenServer()
	require.ErrorContains(t, err, EnvTiDB)
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
