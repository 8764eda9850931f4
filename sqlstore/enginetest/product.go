package enginetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Product is a kind of database server. Its value is the name of subtests.
type Product string

// The products that tests run on.
const (
	MariaDB Product = "mariadb"
	MySQL   Product = "mysql"
	tidb    Product = "tidb" // only if the environment names a server or a program
)

// EnvMariaDB, EnvMySQL and EnvTiDBServer name the program to start as a product's server, in
// place of the one that is found; none is found of TiDB, whose store is then the one that is part
// of its program. It may be a script if that replaces itself by the server (exec): signals are sent
// to its process.
const (
	EnvMariaDB    = "SQLBRAIN_TEST_MARIADBD"
	EnvMySQL      = "SQLBRAIN_TEST_MYSQLD"
	EnvTiDBServer = "SQLBRAIN_TEST_TIDB_SERVER"
)

// ErrNoEngine wraps the reasons why this machine cannot start a server; any
// other failure to start one is a fault that must not be skipped over.
var ErrNoEngine = errors.New("no such engine")

// Program returns the path of the product's server. Its error wraps ErrNoEngine if
// this machine has none.
func (p Product) Program() (string, error) {
	env, names, pkg := EnvMySQL, []string{"mysqld"}, "mysql-server"
	switch p {
	case tidb:
		if path := os.Getenv(EnvTiDBServer); path != "" {
			return path, nil
		}
		return "", fmt.Errorf("%w: %s names no program", ErrNoEngine, EnvTiDBServer)
	case MariaDB:
		// An older MariaDB has the old name. Where both are installed, mysqld is MySQL's.
		env, names, pkg = EnvMariaDB, []string{"mariadbd", "mysqld"}, "mariadb-server"
	}
	if path := os.Getenv(env); path != "" {
		is, err := productOf(path)
		if err == nil && is != p {
			err = fmt.Errorf("%s is a server of %s", path, is)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", env, err)
		}
		return path, nil
	}
	for _, name := range names {
		for _, path := range programs(name) {
			if is, err := productOf(path); err == nil && is == p {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%w: no %s is in PATH or %s that is a server of %s; install one (%s is its usual package), "+
		"name its program in %s, or set %s=mysql://user:password@host:port/ to a server on which the user may "+
		"create databases",
		ErrNoEngine, strings.Join(names, " or "), strings.Join(serverDirs, ", "), p, pkg, env, p.envURL())
}

// serverDirs are where distributions put servers; they are not always in the
// PATH of an ordinary user.
var serverDirs = []string{"/usr/sbin", "/usr/libexec", "/usr/local/sbin"}

// FindProgram returns the path of a program: the first of the name in PATH, then where distributions put servers.
// Its error wraps ErrNoEngine.
func FindProgram(name string) (string, error) {
	paths := programs(name)
	if len(paths) == 0 {
		return "", fmt.Errorf("%w: there is no program %s", ErrNoEngine, name)
	}
	return paths[0], nil
}

// programs returns the programs of a name in PATH, then in serverDirs.
func programs(name string) (paths []string) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), serverDirs...) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// asked holds the products of programs, by path.
var asked sync.Map

// productOf returns the product of a server's program: MariaDB's may have either name.
func productOf(path string) (Product, error) {
	if p, ok := asked.Load(path); ok {
		return p.(Product), nil
	}
	version, err := exec.Command(path, "--no-defaults", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	p := productNamed(string(version))
	asked.Store(path, p)
	return p, nil
}

// productNamed returns the product of a server with the given version text.
func productNamed(version string) Product {
	switch {
	case strings.Contains(version, "MariaDB"):
		return MariaDB
	case strings.Contains(version, "TiDB"):
		return tidb
	default:
		return MySQL
	}
}
