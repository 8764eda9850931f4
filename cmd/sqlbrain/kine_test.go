package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/kine"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// kineGrants are what Kamaji gives the user of a tenant.
const kineGrants = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX"

// kineEndpoint returns kine's form of a URL of these tests.
func kineEndpoint(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	password, _ := u.User.Password()
	return "mysql://" + u.User.Username() + ":" + password + "@tcp(" + u.Host + ")" + u.Path
}

// startKine runs a command line of kine that listens on a socket.
func startKine(t *testing.T, endpoint string, args ...string) *node {
	t.Helper()
	socket := filepath.Join(socketDir(t), "kine.sock")
	n := startNode(t, append([]string{"kine", "--log-format=json", "--metrics-bind-address=127.0.0.1:0", "--endpoint",
		endpoint,
		"--listen-address", "unix://" + socket}, args...)...)
	require.Equal(t, "unix://"+socket, n.endpoint)
	return n
}

// socketDir returns a directory whose path is short enough for sockets.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func TestCommandLineOfKine(t *testing.T) {
	for line, want := range map[string]string{
		"/bin/kine --endpoint x":         "kine --endpoint x",
		"kine -endpoint x --debug":       "kine --endpoint x --debug",
		"sqlbrain kine -debug -- -debug": "kine --debug -- --debug",
		"sqlbrain serve -h":              "serve -h",
		"sqlbrain":                       "",
		"kine":                           "kine",
		"/usr/bin/kine-2":                "",
	} {
		require.Equal(t, want, strings.Join(commandLine(strings.Fields(line)), " "), line)
	}
	require.Empty(t, commandLine(nil))
	a := succeed(t, "kine", "--version")
	require.Contains(t, a.stdout, "kine (sqlbrain ")
	execute(t, "kine", "now").requireRefused(t, `unknown command "now"`)
	execute(t, "kine", "--endpiont=x").requireRefused(t, "did you mean --endpoint?")
	execute(t, "kine", "--endpoint=postgres://u:"+secret+"@h/d").requireRefused(t, "postgres:// is not supported")
	execute(t, "kine", "--endpoint=mysql://u:"+secret+"@h/d").requireRefused(t, "tcp(host:port)")
}

// TestKineOverSQLite: the file is where kine has it, and the directory is made.
func TestKineOverSQLite(t *testing.T) {
	t.Chdir(t.TempDir())
	n := startKine(t, "")
	n.put(t, "k", "v")
	require.FileExists(t, "db/state.db")
	info, err := os.Stat(strings.TrimPrefix(n.endpoint, "unix://"))
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket|0o600, info.Mode())

	// Everything else that a client URL serves is there too.
	var dialer net.Dialer
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", strings.TrimPrefix(n.endpoint, "unix://"))
		}}}
	for _, path := range []string{"/readyz", "/metrics", "/version"} {
		r, err := client.Get("http://localhost" + path)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, http.StatusOK, r.StatusCode, path)
	}
	r, err := client.Post("http://localhost/v3/kv/range", "application/json", strings.NewReader(`{"key":"aw=="}`))
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusOK, r.StatusCode)
	succeed(t, "health", "--listen-client-urls", n.endpoint)
	require.Zero(t, n.stop())
	require.NoFileExists(t, strings.TrimPrefix(n.endpoint, "unix://"))
}

func TestKineCreatesItsDatabase(t *testing.T) {
	onProducts(t, func(t *testing.T, product enginetest.Product) {
		rootURL := product.Database(t)
		u, err := url.Parse(rootURL)
		require.NoError(t, err)
		if u.Path += "_new"; product.Can(enginetest.BackquotedNames) {
			u.Path += "`"
		}
		name := strings.TrimPrefix(u.Path, "/")
		t.Cleanup(func() { enginetest.Exec(t, rootURL, "DROP DATABASE `"+strings.ReplaceAll(name, "`", "``")+"`") })
		n := startKine(t, kineEndpoint(t, u.String()))
		require.NotNil(t, n.log.await("created the database"))
		n.put(t, "k", "v")
		require.Zero(t, n.stop())
		n = startKine(t, kineEndpoint(t, u.String()))
		got, err := n.client(t).Get(t.Context(), "k")
		require.NoError(t, err)
		require.Len(t, got.Kvs, 1)
		require.NotContains(t, n.log.String(), "created the database")

		u.Path += "2"
		limited, err := url.Parse(newUser(t, rootURL, kineGrants))
		require.NoError(t, err)
		limited.Path = u.Path
		serveKineRefused(t, kineEndpoint(t, limited.String()), "denied")
	})
}

// Tables as kine 0.16 makes and fills them.
var (
	kineTable = []string{
		"CREATE TABLE kine (id INTEGER PRIMARY KEY, name VARCHAR(630), created INTEGER, deleted INTEGER, create_revision INTEGER, " +
			"prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB)",
		"INSERT INTO kine VALUES (1, 'compact_rev_key', 0, 0, 0, 0, 0, '', ''), (2, '/registry/health', 1, 0, 0, 0, 0, '{}', '')",
	}
	kineKeys = []string{
		"INSERT INTO kine VALUES (3, '/registry/a', 1, 0, 0, 0, 0, 'old', ''), (4, '/registry/b', 1, 0, 0, 0, 0, 'b', '')",
		"INSERT INTO kine VALUES (5, '/registry/a', 0, 0, 3, 3, 0, 'new', 'old'), (6, '/registry/b', 0, 1, 4, 4, 0, 'b', 'b')",
		"INSERT INTO kine VALUES (7, 'gap-7', 0, 1, 0, 0, 0, '', ''), (8, '/registry/events/e', 1, 0, 0, 0, 3600, 'e', '')",
	}
)

// onKinesTable runs f on SQLite and on every product, on a database with kine's table. It gets
// kine's endpoint, and what executes statements.
func onKinesTable(t *testing.T, f func(t *testing.T, endpoint string, exec func(statements ...string))) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		database := sqliteURL(t)
		sqliteExec(t, database, kineTable...)
		f(t, database, func(statements ...string) { sqliteExec(t, database, statements...) })
	})
	onProducts(t, func(t *testing.T, product enginetest.Product) {
		t.Parallel()
		database := product.Database(t)
		enginetest.Exec(t, database, kineTable...)
		f(t, kineEndpoint(t, newUser(t, database, kineGrants)),
			func(statements ...string) { enginetest.Exec(t, database, statements...) })
	})
}

// summaries are keys with their values, their revisions and their leases.
func summaries(kvs []*mvccpb.KeyValue) (out []string) {
	for _, kv := range kvs {
		out = append(out, fmt.Sprintf("%s=%s %d %d %d", kv.Key, kv.Value, kv.CreateRevision, kv.ModRevision, kv.Lease))
	}
	return out
}

func TestKinesKeysAreImported(t *testing.T) {
	onKinesTable(t, func(t *testing.T, endpoint string, exec func(...string)) {
		exec(kineKeys...)
		n := startKine(t, endpoint)
		c := n.client(t)
		got, err := c.Get(t.Context(), "", clientv3.WithFromKey())
		require.NoError(t, err)
		require.EqualValues(t, 8, got.Header.Revision)
		require.Equal(t, []string{"/registry/a=new 3 5 0", "/registry/events/e=e 8 8 3600", "/registry/health={} 2 2 0"},
			summaries(got.Kvs))
		require.EqualValues(t, 2, got.Kvs[0].Version)
		_, err = c.Get(t.Context(), "/registry/a", clientv3.WithRev(7))
		require.ErrorContains(t, err, "compacted")
		left, err := c.TimeToLive(t.Context(), 3600, clientv3.WithAttachedKeys())
		require.NoError(t, err)
		require.EqualValues(t, 3600, left.GrantedTTL)
		require.Len(t, left.Keys, 1)
		require.Zero(t, n.stop())

		exec("SELECT name_in_sqlbrain FROM kine") // kine finds no column of the old name
		revert := []string{"kine", "--revert", "--endpoint", endpoint}
		succeed(t, revert...)
		execute(t, revert...).requireRefused(t, "no table of kine whose keys were imported")
		exec("INSERT INTO kine (id, name, created, deleted, create_revision, prev_revision, lease, value) VALUES (9, " +
			"'/registry/c', 1, 0, 0, 0, 0, 'c')")

		n = startKine(t, endpoint)
		put, err := n.client(t).Put(t.Context(), "/registry/c", "d", clientv3.WithPrevKV())
		require.NoError(t, err)
		require.EqualValues(t, 10, put.Header.Revision)
		require.Equal(t, "c", string(put.PrevKv.Value))
		require.Zero(t, n.stop())
		execute(t, revert...).requireRefused(t, "keys were written since", "--keep-writes",
			"kine's newest revision is 9, sqlbrain's 10")
		n = startKine(t, endpoint)
		require.NotContains(t, n.log.String(), "importing the keys")
		c = n.client(t)
		// kine has one key for a revision, and no version.
		_, err = c.Txn(t.Context()).Then(clientv3.OpPut("/registry/d", "1"), clientv3.OpPut("/registry/e", "2")).Commit()
		require.NoError(t, err)
		lease, err := c.Grant(t.Context(), 70)
		require.NoError(t, err)
		_, err = c.Put(t.Context(), "/registry/f", "3", clientv3.WithLease(lease.ID))
		require.NoError(t, err)
		lease, err = c.Grant(t.Context(), 1<<32) // more than the column of kine's table takes
		require.NoError(t, err)
		_, err = c.Put(t.Context(), "/registry/long", "4", clientv3.WithLease(lease.ID))
		require.NoError(t, err)
		_, err = c.Delete(t.Context(), "/registry/a")
		require.NoError(t, err)
		running := execute(t, append(revert, "--keep-writes")...)
		require.Equal(t, 1, running.code, running.stdout)
		require.Regexp(t, "members are running|in use by another sqlbrain", running.stderr)
		require.Zero(t, n.stop())
		execute(t, "kine", "--keep-writes", "--endpoint", endpoint).requireRefused(t, "--revert")
		succeed(t, append(revert, "--keep-writes")...)
		exec("INSERT INTO kine (id, name, created, deleted, create_revision, prev_revision, lease, value) VALUES (17, " +
			"'/registry/g', 1, 0, 0, 0, 0, 'g')")
		n = startKine(t, endpoint)
		got, err = n.client(t).Get(t.Context(), "", clientv3.WithFromKey())
		require.NoError(t, err)
		require.EqualValues(t, 17, got.Header.Revision)
		require.Equal(t, []string{"/registry/c=d 9 10 0", "/registry/d=1 11 11 0", "/registry/e=2 16 16 0",
			"/registry/events/e=e 8 8 3600", "/registry/f=3 12 12 70",
			"/registry/g=g 17 17 0", "/registry/health={} 2 2 0", "/registry/long=4 13 13 2147483647"}, summaries(got.Kvs))
		require.Zero(t, n.stop())
	})
}

// serveKineRefused runs a command line of kine that must refuse to serve for these reasons.
func serveKineRefused(t *testing.T, endpoint string, reasons ...string) {
	t.Helper()
	execute(t, "kine", "--log-format=json", "--metrics-bind-address=0", "--listen-address=127.0.0.1:0", "--endpoint",
		endpoint).requireRefused(t, reasons...)
}

// TestStoreWithoutATableOfKines: no kine can use a database that began under sqlbrain, until it is given to kine with
// all its keys.
func TestStoreWithoutATableOfKines(t *testing.T) {
	onKinesTable(t, func(t *testing.T, endpoint string, exec func(...string)) {
		exec("DROP TABLE kine")
		revert := []string{"kine", "--revert", "--endpoint", endpoint}
		n := startKine(t, endpoint)
		exec("SELECT name_in_sqlbrain FROM kine")
		_, err := n.client(t).Get(t.Context(), "k") // it leads
		require.NoError(t, err)
		require.Zero(t, n.stop())
		succeed(t, revert...) // nothing was written
		exec("SELECT name FROM kine")

		n = startKine(t, endpoint)
		// kube-apiserver compacts by the second one
		for _, key := range []string{"/registry/a", "compact_rev_key", "/registry/b"} {
			n.put(t, key, key)
		}
		require.Zero(t, n.stop())
		execute(t, revert...).requireRefused(t, "--keep-writes")
		if strings.HasPrefix(endpoint, "mysql") { // A key that kine cannot have is named, and stays.
			keys := []string{"/long/" + strings.Repeat("k", 700), "/registry/\u00e4", "/registry/b "}
			if enginetest.Any().Can(enginetest.CaseFolding) {
				keys = append(keys, "/registry/A")
			}
			for _, key := range keys {
				n = startKine(t, endpoint)
				n.put(t, key, "1")
				require.Zero(t, n.stop())
				a := execute(t, append(revert, "--keep-writes")...)
				require.NotZero(t, a.code, "%q", key)
				// Of two keys that differ in case it names the second.
				require.Contains(t, strings.ToLower(a.stderr), strings.ToLower(fmt.Sprintf("the key %.100q", key)))
				twin := key == "/registry/b " || key == "/registry/A"
				require.Equal(t, twin, strings.Contains(a.stderr, "takes it for another key"), a.stderr)
				n = startKine(t, endpoint)
				deleted, err := n.client(t).Delete(t.Context(), key)
				require.NoError(t, err)
				require.EqualValues(t, 1, deleted.Deleted)
				require.Zero(t, n.stop())
			}
		}
		exec("DROP TABLE kine") // As if sqlbrain serve had served it: the table is made now.
		execute(t, revert...).requireRefused(t, "no table of kine whose keys were imported")
		succeed(t, append(revert, "--keep-writes")...)
		exec("INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value) VALUES " +
			"('/registry/c', 1, 0, 0, 0, 0, 'c')")

		n = startKine(t, endpoint)
		got, err := n.client(t).Get(t.Context(), "", clientv3.WithFromKey())
		require.NoError(t, err)
		require.Greater(t, got.Header.Revision, int64(4))
		var keys []string
		for _, kv := range got.Kvs {
			keys = append(keys, fmt.Sprintf("%s=%s", kv.Key, kv.Value))
		}
		require.Equal(t, []string{"/registry/a=/registry/a", "/registry/b=/registry/b", "/registry/c=c"}, keys)
		require.Zero(t, n.stop())
	})
}

// TestEmptiedTableIsNotFilledAgain: kine's old keys come back only if that is demanded.
func TestEmptiedTableIsNotFilledAgain(t *testing.T) {
	onKinesTable(t, func(t *testing.T, endpoint string, exec func(...string)) {
		exec(kineKeys...)
		n := startKine(t, endpoint)
		n.put(t, "/registry/a", "newer")
		require.Zero(t, n.stop())
		again := []string{"kine", "--import-again", "--endpoint", endpoint}
		execute(t, again...).requireRefused(t, "has data of sqlbrain")
		exec("DELETE FROM object")
		for range 2 {
			serveKineRefused(t, endpoint, "--import-again")
			execute(t, "kine", "--revert", "--endpoint", endpoint).requireRefused(t, "--import-again")
			execute(t, "kine", "--revert", "--keep-writes", "--endpoint", endpoint).requireRefused(t, "--import-again")
		}
		execute(t, append(again, "--revert")...).requireRefused(t, "exclude each other")
		succeed(t, again...)
		execute(t, again...).requireRefused(t, "has data of sqlbrain")
		n = startKine(t, endpoint)
		got, err := n.client(t).Get(t.Context(), "/registry/a")
		require.NoError(t, err)
		require.Equal(t, "new", string(got.Kvs[0].Value))
		require.Zero(t, n.stop())
	})
}

// TestRevertWhileAServerStarts: one that looked at kine's table before does not serve the empty store.
func TestRevertWhileAServerStarts(t *testing.T) {
	onKinesTable(t, func(t *testing.T, endpoint string, exec func(...string)) {
		exec(kineKeys...)
		require.Zero(t, startKine(t, endpoint).stop())
		log := newLogBuffer()
		flags, p := kine.New(), &program{settings: config.New(), stdout: log, stderr: log}
		require.NoError(t, flags.Load([]string{"KINE_ENDPOINT=" + endpoint, "KINE_LISTEN_ADDRESS=127.0.0.1:0",
			"KINE_METRICS_BIND_ADDRESS=0", "KINE_PEER_BIND_ADDRESS=127.0.0.1:0",
			"KINE_PEER_ADVERTISE_ADDRESS=127.0.0.1:1", "KINE_LOG_FORMAT=json"}))
		_, err := flags.Apply(p.settings)
		require.NoError(t, err)
		require.NoError(t, p.settings.Load(nil))
		ended := make(chan error, 1)
		go func() {
			ended <- p.serve(t.Context(), func(*slog.Logger) error {
				succeed(t, "kine", "--revert", "--endpoint", endpoint)
				return nil
			})
			log.close()
		}()
		require.Nil(t, log.await("ready"))
		require.ErrorIs(t, <-ended, repair.ErrReverting)
		exec("SELECT name FROM kine")
	})
}

// TestKineWithoutClients: a kine that runs is noticed, also if no client writes. It adds rows for missing revisions.
func TestKineWithoutClients(t *testing.T) {
	onKinesTable(t, func(t *testing.T, endpoint string, exec func(...string)) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var poller sync.WaitGroup
		poller.Go(func() {
			for ctx.Err() == nil {
				exec("INSERT INTO kine (id, name, created, deleted) SELECT id - 1, 'gap', 0, 1 FROM kine AS newer " +
					"WHERE id > 2 AND NOT EXISTS (SELECT id FROM kine AS older WHERE older.id = newer.id - 1)")
				time.Sleep(10 * time.Millisecond)
			}
		})
		serveKineRefused(t, endpoint, "a kine uses the table")
		exec("SELECT name FROM kine")
		cancel()
		poller.Wait()
		require.Zero(t, startKine(t, endpoint).stop())
	})
}

func TestKineNotesWhatHasNoEffect(t *testing.T) {
	n := startKine(t, sqliteURL(t), "--poll-batch-size=100")
	require.Contains(t, n.log.String(), "--poll-batch-size has no effect: members get commits from the leader")
}

func TestKineWithAnAddressOfItsPod(t *testing.T) {
	endpoint := kineEndpoint(t, mysqlUser(t, kineGrants))
	socket := "unix://" + filepath.Join(socketDir(t), "s")
	args := []string{"kine", "--log-format=json", "--metrics-bind-address=0", "--endpoint", endpoint,
		"--listen-address", socket}
	executeEnv(t, []string{"POD_IP=here"}, args...).requireRefused(t, "POD_IP", "not an IP address")
	executeEnv(t, []string{"POD_IP=192.0.2.1"}, args...).requireRefused(t, "192.0.2.1")

	ctx, cancel := context.WithCancel(t.Context())
	log := newLogBuffer()
	done := make(chan int)
	go func() { done <- run(ctx, args, []string{"POD_IP=127.0.0.2"}, log, log) }()
	require.NotNil(t, log.await("ready"), log.String())
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{socket}})
	require.NoError(t, err)
	members, err := c.MemberList(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Contains(t, members.Members[0].PeerURLs[0], "https://127.0.0.2:")
	cancel()
	require.Zero(t, <-done)
}
