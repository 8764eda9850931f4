package main

import (
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// serve runs a command line that must be refused at start.
func serve(t *testing.T, args ...string) answer {
	t.Helper()
	a := execute(t, append([]string{"serve", "--listen-client-urls=http://127.0.0.1:0", "--listen-peer-urls="},
		args...)...)
	require.Empty(t, a.stdout)
	return a
}

func writeTemp(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func sqliteExec(t *testing.T, rawURL string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", strings.TrimPrefix(rawURL, "sqlite://"))
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)                            // one transaction may span statements
	_, err = db.Exec("PRAGMA busy_timeout = 300000") // a server may be writing
	require.NoError(t, err)
	for _, s := range statements {
		_, err := db.Exec(s)
		require.NoError(t, err, s)
	}
}

func TestInvalidCommandLinesAreRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--no-such-flag", "unknown flag: --no-such-flag; see sqlbrain --help"},
		{"serve --no-such-flag", "see sqlbrain serve --help"},
		{"serv", `unknown command "serv" for "sqlbrain": did you mean "serve"?`},
		{"docotr", `did you mean "doctor"?`},
		{"migrate downn", `unknown command "downn" for "sqlbrain migrate": did you mean "down"?`},
		{"migrate up --datastor=x", "unknown flag: --datastor: did you mean --datastore?; see sqlbrain migrate up --help"},
		{"--election-timeout=1000", "--election-timeout is a flag of etcd that sqlbrain does not have"},
		{"serve now", `unknown command "now"`},
		{"--max-txn-ops=0", "--max-txn-ops: 0 is too small"},
		{"--datastore=mysql://u:Geheim@127.0.0.1:1/", "database"},
		{"migrate", "name one of up, down, version and force"},
		{"migrate sideways", `unknown command "sideways"`},
		{"migrate force x", `"x" is not a version`},
		{"migrate force", "accepts 1 arg"},
		{"doctor --output=xml", "must be one of table, json"},
		{"migrate up --listen-client-urls=x", "unknown flag"},
	} {
		execute(t, strings.Fields(c.args)...).requireRefused(t, c.want)
	}
}

func TestDatabaseIsNotTouchedBeforeSettingsAndPortsAreChecked(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	garbage := writeTemp(t, "garbage.pem", "garbage")
	tls := "--listen-client-urls=https://127.0.0.1:0"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen-client-urls=http://" + taken.Addr().String()},
			"sqlbrain: --listen-client-urls: server: listen on http://" + taken.Addr().String() + ": the address is in use"},
		{[]string{"--listen-metrics-urls=http://" + taken.Addr().String()},
			"sqlbrain: --listen-metrics-urls: server: listen on http://" + taken.Addr().String() + ": the address is in use"},
		{[]string{"--listen-client-urls=http://192.0.2.1:0"}, "listen on http://192.0.2.1:0"},
		{[]string{tls, "--cert-file=/does/not/exist", "--key-file=/does/not/exist"}, "/does/not/exist"},
		{[]string{tls, "--cert-file=" + garbage, "--key-file=" + garbage}, "cert-file"},
		{[]string{"--log-level=loud"}, "--log-level"},
		{[]string{"--log-outputs=" + garbage + "/log"}, "log-outputs"},
	} {
		raw := sqliteURL(t)
		serve(t, append(c.args, "--datastore", raw)...).requireRefused(t, c.want)
		require.NoFileExists(t, strings.TrimPrefix(raw, "sqlite://"), c.want)
	}
}

func TestUnusableSQLiteFilesAreRefused(t *testing.T) {
	t.Run("not a database", func(t *testing.T) {
		path := writeTemp(t, "text.db", strings.Repeat("this is no database\n", 1000))
		serve(t, "--datastore", "sqlite://"+path).requireRefused(t, "not a database")
	})
	t.Run("a directory that cannot be made", func(t *testing.T) {
		path := writeTemp(t, "file", "")
		serve(t, "--datastore", "sqlite://"+path+"/sub/test.db").requireRefused(t, "not a directory")
	})
	t.Run("a directory in place of the file", func(t *testing.T) {
		serve(t, "--datastore", "sqlite://"+t.TempDir()).requireRefused(t, "datastore sqlite://")
	})
	t.Run("no schema", func(t *testing.T) {
		serve(t, "--migrate=verify", "--datastore", sqliteURL(t)).requireRefused(t, "has no sqlbrain schema",
			"sqlbrain migrate up --datastore")
	})
}

// changed returns raw with a part replaced.
func changed(t *testing.T, raw string, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	change(u)
	return u.String()
}

func TestUnreachableMySQLIsExplained(t *testing.T) {
	onProducts(t, func(t *testing.T, p enginetest.Product) {
		good := newUser(t, p.Database(t), "ALL PRIVILEGES")
		closed := fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))
		caFile := writeTemp(t, "ca.pem", "garbage")
		for _, c := range []struct{ name, raw, want string }{
			{"wrong password",
				changed(t, good, func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), secret+"wrong") }),
				"Access denied"},
			{"no such user", changed(t, good, func(u *url.URL) { u.User = url.UserPassword("nobody", secret) }),
				"Access denied for user 'nobody'"},
			{"no such database", changed(t, good, func(u *url.URL) { u.Path = "/does_not_exist" }), "does_not_exist"},
			{"no listener", changed(t, good, func(u *url.URL) { u.Host = closed }), closed + ": connect: connection refused"},
			{"no such host", changed(t, good, func(u *url.URL) { u.Host = "no-such-host.invalid:3306" }),
				"no-such-host.invalid"},
			{"bad CA file", changed(t, good, func(u *url.URL) { u.RawQuery = "tls-ca=" + caFile }), "datastore mysql://"},
			{"no right to create tables", newUser(t, p.Database(t), "SELECT, INSERT"), "CREATE command denied"},
		} {
			t.Run(c.name, func(t *testing.T) {
				serve(t, "--datastore", c.raw).requireRefused(t, c.want)
				execute(t, "migrate", "up", "--datastore", c.raw).requireRefused(t, c.want)
			})
		}
	})
}

func TestReadOnlyMySQL(t *testing.T) {
	onProducts(t, func(t *testing.T, p enginetest.Product) {
		server := p.StartServer(t)
		raw := newUser(t, server.URL(), "ALL PRIVILEGES")
		empty := newUser(t, server.NewDatabase("empty"), "ALL PRIVILEGES")
		c := startNode(t, "--datastore", raw, "--request-timeout=2s").client(t)
		_, err := c.Put(t.Context(), "k", "before")
		require.NoError(t, err)
		enginetest.Exec(t, server.URL(), "SET GLOBAL "+p.ReadOnly()+" = 1")
		_, err = c.Put(t.Context(), "k", "refused")
		var refused rpctypes.EtcdError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, codes.Unavailable, refused.Code(), err)
		eventually.True(t, "a serializable read", func() bool {
			got, err := c.Get(t.Context(), "k", clientv3.WithSerializable())
			return err == nil && string(got.Kvs[0].Value) == "before"
		})

		serve(t, "--datastore", raw).requireRefused(t, "read-only")
		serve(t, "--datastore", empty).requireRefused(t, "read-only")
		a := execute(t, "doctor", "--datastore", raw)
		require.Equal(t, 1, a.code)
		require.Contains(t, a.stdout, p.ReadOnly()+" is on")
		enginetest.Exec(t, server.URL(), "SET GLOBAL "+p.ReadOnly()+" = 0")
		eventually.True(t, "a write", func() bool { _, err := c.Put(t.Context(), "k", "after"); return err == nil })
	})
}
