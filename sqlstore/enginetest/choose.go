package enginetest

import (
	"errors"
	"os"
)

// Products are those that every claim about databases must hold on: all, or only
// the TiDB that EnvTiDB names.
func Products() []Product {
	if OnTiDB() {
		return []Product{tidb}
	}
	return []Product{MariaDB, MySQL}
}

// ServerGiven reports whether Database uses a server that the environment names.
func ServerGiven() bool { return os.Getenv(some().envURL()) != "" }

// some is the product to use where it makes no difference.
func some() Product {
	for _, p := range []Product{tidb, MariaDB, MySQL} {
		if os.Getenv(p.envURL()) != "" {
			return p
		}
	}
	return local()
}

// local is a product with a program on this machine. MariaDB starts faster.
func local() Product {
	if _, err := MariaDB.Program(); errors.Is(err, ErrNoEngine) {
		if _, err := MySQL.Program(); !errors.Is(err, ErrNoEngine) {
			return MySQL
		}
	}
	return MariaDB
}
