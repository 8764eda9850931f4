package enginetest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// EnvRequire, if "1", makes a missing engine, or whatever else a test needs, a failure rather than a skip.
const EnvRequire = "SQLBRAIN_REQUIRE_ENGINES"

// connectWait bounds one administrative statement, connecting included.
const connectWait = 3 * time.Minute

// shared are the servers that all tests of this process use.
var shared = struct {
	sync.Mutex
	servers map[Product]func() (*instance, error)
}{servers: map[Product]func() (*instance, error){}}

// Database returns the URL of a fresh, empty database, which is dropped when t
// ends. The user of the URL is root on servers started here.
func (p Product) Database(t testing.TB) string {
	t.Helper()
	server, err := p.server()
	if err != nil {
		Need(t, err, ErrNoEngine)
	}
	return createDatabase(t, server)
}

// Database is Product.Database for a test to which the product makes no difference. It
// prefers a server that the environment names, then a MariaDB of this machine, then a
// MySQL.
func Database(t testing.TB) string {
	t.Helper()
	return Any().Database(t)
}

// server returns the URL of the product's shared server, and starts it if need be.
func (p Product) server() (string, error) {
	given, err := p.given()
	if err != nil {
		return "", err
	}
	if given != "" {
		return given, p.verify(given)
	}
	shared.Lock()
	start := shared.servers[p]
	if start == nil {
		start = sync.OnceValues(func() (*instance, error) { return startShared(p) })
		shared.servers[p] = start
	}
	shared.Unlock()
	s, err := start()
	if err != nil {
		return "", err
	}
	return s.url(""), nil
}

func startShared(product Product) (*instance, error) {
	p, err := newInstance(product)
	if err != nil {
		return nil, err
	}
	if err := p.start(); err != nil {
		return nil, errors.Join(err, p.remove())
	}
	return p, nil
}

// Main returns a runner of m's tests that afterwards stops the servers started by Database.
// TestMain should pass it to goleak or call os.Exit(enginetest.Main(m).Run()). Without it
// the servers end with the process, and their directories stay until the next test process
// removes them.
func Main(m interface{ Run() int }) interface{ Run() int } { return runner{m} }

type runner struct{ inner interface{ Run() int } }

func (r runner) Run() int {
	code := r.inner.Run()
	shared.Lock()
	defer shared.Unlock()
	for product, start := range shared.servers {
		delete(shared.servers, product)
		s, err := start()
		if err != nil {
			continue // so said the tests
		}
		// Its data is removed next, so a clean shutdown is not needed.
		if err := errors.Join(s.kill(), s.remove()); err != nil {
			fmt.Fprintln(os.Stderr, "enginetest:", err)
			code = max(code, 1)
		}
	}
	if err := removeTemplates(); err != nil {
		fmt.Fprintln(os.Stderr, "enginetest:", err)
		code = max(code, 1)
	}
	return code
}

// Need fails t on err, such as an engine that does not start. If err is missing, which says
// that this machine has not got what t needs, it skips t, unless EnvRequire demands everything.
func Need(t testing.TB, err, missing error) {
	t.Helper()
	if err == nil {
		return
	}
	if errors.Is(err, missing) && os.Getenv(EnvRequire) != "1" {
		t.Skip(err)
	}
	t.Fatal(err)
}

// createDatabase creates a database on the server that serverURL names.
func createDatabase(t testing.TB, serverURL string) string {
	t.Helper()
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails, by its documentation
	name := "sqlbrain_test_" + hex.EncodeToString(random[:])
	u, err := withDatabase(serverURL, name)
	require.NoError(t, err)
	Exec(t, serverURL, "CREATE DATABASE "+name)
	t.Cleanup(func() { dropDatabase(t, serverURL, name) })
	return u
}

func dropDatabase(t testing.TB, serverURL, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), connectWait)
	defer cancel()
	if err := execute(ctx, serverURL, "DROP DATABASE IF EXISTS "+name); err != nil {
		t.Errorf("drop the test's database: %v", err)
	}
}

// Exec runs statements, one after the other, on the server and database that
// rawURL names, and ends t if one fails.
func Exec(t testing.TB, rawURL string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), connectWait)
	defer cancel()
	require.NoError(t, execute(ctx, rawURL, statements...))
}

func execute(ctx context.Context, rawURL string, statements ...string) (err error) {
	db, err := open(rawURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// open opens a pool on a mysql:// URL. It has one connection, so that session
// settings last from one statement to the next.
func open(rawURL string) (*sql.DB, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "mysql" {
		return nil, fmt.Errorf("not a mysql:// URL: %q", u.Redacted())
	}
	cfg := mysql.NewConfig()
	cfg.Net = "tcp"
	cfg.Addr = u.Host
	if u.Port() == "" {
		cfg.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Logger = &mysql.NopLogger{}
	if len(u.Path) > 1 {
		cfg.DBName = u.Path[1:]
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	return db, nil
}

// withDatabase replaces the database of a mysql:// URL and keeps the rest.
func withDatabase(rawURL, name string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}
