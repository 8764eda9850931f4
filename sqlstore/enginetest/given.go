package enginetest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
)

// Environment variables that name a server to use instead of starting one, as
// mysql://user:password@host:port/, or, the last, tidb://user:password@host:4000/.
// The user must be allowed to create and drop databases.
const (
	EnvMariaDBURL = "SQLBRAIN_TEST_MARIADB_URL"
	EnvMySQLURL   = "SQLBRAIN_TEST_MYSQL_URL"
	// EnvTiDB, or else EnvTiDBServer, takes precedence: Products is then this TiDB alone. Without
	// EnvTiDBServer, tests that start and stop their server still use a MySQL or MariaDB.
	EnvTiDB = "SQLBRAIN_TEST_TIDB_URL"
)

// OnTiDB reports whether Database returns databases of a TiDB.
func OnTiDB() bool { return os.Getenv(EnvTiDB) != "" || os.Getenv(EnvTiDBServer) != "" }

func (p Product) envURL() string {
	switch p {
	case MariaDB:
		return EnvMariaDBURL
	case tidb:
		return EnvTiDB
	default:
		return EnvMySQLURL
	}
}

// given returns the mysql:// URL of the server that the environment names for the
// product; empty if it names none.
func (p Product) given() (string, error) {
	env := p.envURL()
	raw := os.Getenv(env)
	if raw == "" {
		return "", nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "mysql" && (u.Scheme != "tidb" || p != tidb) {
		return "", fmt.Errorf("%s is not a mysql:// or, of a TiDB, tidb:// URL", env)
	}
	if u.Port() == "" && u.Scheme == "tidb" {
		u.Host = net.JoinHostPort(u.Hostname(), "4000")
	}
	u.Scheme = "mysql"
	return u.String(), nil
}

// TiDBURL returns the mysql:// URL of the TiDB that the environment names; empty if it names none.
func TiDBURL() (string, error) { return tidb.given() }

// Version returns what the server at a mysql:// URL calls itself.
func Version(serverURL string) (version string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectWait)
	defer cancel()
	db, err := open(serverURL)
	if err != nil {
		return "", err
	}
	defer db.Close() //nolint:errcheck // it was only asked
	err = db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	return version, err
}

// verify returns an error unless the server that the environment names for the product is
// one: tests report the product they ran on.
func (p Product) verify(serverURL string) error {
	version, err := Version(serverURL)
	if err != nil {
		return err
	}
	// A TiDB's version text is configurable.
	if is := productNamed(version); is != p && p != tidb {
		return fmt.Errorf("%s names a server of %s (%s): set %s", p.envURL(), is, version, is.envURL())
	}
	return nil
}
