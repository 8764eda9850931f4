package enginetest

import (
	"errors"
	"os"
	"testing"
)

// Products are those that every claim about databases must hold on: all, or only
// the TiDB that EnvTiDB or EnvTiDBServer names.
func Products() []Product {
	if OnTiDB() {
		return []Product{tidb}
	}
	return []Product{MariaDB, MySQL}
}

// ServerGiven reports whether a test that needs a server of any product is to use one that the environment names. It
// is not if the program of a TiDB is named too.
func ServerGiven() bool { return os.Getenv(Any().envURL()) != "" && os.Getenv(EnvTiDBServer) == "" }

// Any is the product to use where it makes no difference.
func Any() Product {
	if OnTiDB() {
		return tidb
	}
	for _, p := range []Product{MariaDB, MySQL} {
		if os.Getenv(p.envURL()) != "" {
			return p
		}
	}
	return local()
}

// StandIn returns the URL of a fresh database of a MySQL or MariaDB, for a test of what no real TiDB does.
func StandIn(t testing.TB) string {
	t.Helper()
	return local().Database(t)
}

// local is MySQL or MariaDB, whichever has a program on this machine. MariaDB starts faster.
func local() Product {
	if _, err := MariaDB.Program(); errors.Is(err, ErrNoEngine) {
		if _, err := MySQL.Program(); !errors.Is(err, ErrNoEngine) {
			return MySQL
		}
	}
	return MariaDB
}
