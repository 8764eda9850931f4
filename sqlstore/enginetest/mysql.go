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
)

// Environment variables that choose the engine.
const (
	// EnvURL names a server to use instead of starting one, as
	// mysql://user:password@host:port/. The user must be allowed to create and
	// drop databases.
	EnvURL = "SQLBRAIN_TEST_MYSQL_URL"
	// EnvRequire, if "1", makes a missing engine a failure rather than a skip.
	EnvRequire = "SQLBRAIN_REQUIRE_ENGINES"
)

// connectWait bounds one administrative statement, connecting included.
const connectWait = 30 * time.Second

// errNoEngine wraps the reasons why this machine cannot start a server; any
// other failure to start one is a fault that must not be skipped over.
var errNoEngine = errors.New("no MySQL or MariaDB")

// shared is the server that all tests of this process use.
var shared struct {
	sync.Mutex
	started bool
	process *process // nil if start-up failed, or EnvURL is used
	err     error
}

// MySQL returns the URL of a fresh, empty database, which is dropped when t
// ends. The user of the URL is root on servers started here.
func MySQL(t testing.TB) string {
	t.Helper()
	if u, err := givenServer(); err != nil {
		t.Fatal(err)
	} else if u != "" {
		return createDatabase(t, u)
	}
	shared.Lock()
	if !shared.started {
		shared.started = true
		shared.process, shared.err = startShared()
	}
	p, err := shared.process, shared.err
	shared.Unlock()
	if err != nil {
		unavailable(t, err)
	}
	return createDatabase(t, p.url(""))
}

// givenServer returns the mysql:// URL of the server that the environment names;
// empty if it names none.
func givenServer() (string, error) {
	tidbURL := os.Getenv(EnvTiDB)
	if tidbURL == "" {
		return os.Getenv(EnvURL), nil
	}
	u, err := url.Parse(tidbURL)
	if err != nil || u.Scheme != "tidb" && u.Scheme != "mysql" {
		return "", fmt.Errorf("%s is not a tidb:// URL", EnvTiDB)
	}
	if u.Port() == "" && u.Scheme == "tidb" {
		u.Host = net.JoinHostPort(u.Hostname(), "4000")
	}
	u.Scheme = "mysql"
	return u.String(), nil
}

// OnTiDB reports whether MySQL returns databases of a TiDB.
func OnTiDB() bool { return os.Getenv(EnvTiDB) != "" }

func startShared() (*process, error) {
	p, err := newProcess()
	if err != nil {
		return nil, err
	}
	if err := p.start(); err != nil {
		return nil, errors.Join(err, p.remove())
	}
	return p, nil
}

// Main returns a runner of m's tests that stops the server MySQL started, once
// they are done. It is for TestMain, which should hand it to goleak or call
// os.Exit(enginetest.Main(m).Run()). Without it the server ends with the
// process, and its directory stays until the next test process removes it.
func Main(m interface{ Run() int }) interface{ Run() int } { return runner{m} }

type runner struct{ inner interface{ Run() int } }

func (r runner) Run() int {
	code := r.inner.Run()
	shared.Lock()
	defer shared.Unlock()
	if p := shared.process; p != nil {
		// Its data is about to be removed: there is nothing to shut down cleanly.
		if err := errors.Join(p.kill(), p.remove()); err != nil {
			fmt.Fprintln(os.Stderr, "enginetest:", err)
			code = max(code, 1)
		}
	}
	shared.process, shared.started, shared.err = nil, false, nil
	return code
}

// unavailable ends t: a machine without an engine skips it unless engines are
// required; an engine that does not start fails it.
func unavailable(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errNoEngine) && os.Getenv(EnvRequire) != "1" {
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := execute(ctx, rawURL, statements...); err != nil {
		t.Fatal(err)
	}
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
