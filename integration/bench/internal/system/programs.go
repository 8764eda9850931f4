package system

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// Programs are the files that are run; "" if there is none.
type Programs struct {
	Sqlbrain, Etcd, Kine           string
	MySQL, MariaDB, MariaDBInstall string
	// TiDB is the URL of a server that runs.
	TiDB string
}

// FindDatabases looks for the programs of database servers on this machine, where the tests of the product look too.
func (p *Programs) FindDatabases() error {
	for product, path := range map[enginetest.Product]*string{enginetest.MySQL: &p.MySQL, enginetest.MariaDB: &p.MariaDB} {
		var err error
		if *path, err = product.Program(); err != nil && !errors.Is(err, enginetest.ErrNoEngine) {
			return err
		}
	}
	var err error
	if p.TiDB, err = enginetest.TiDBURL(); err != nil {
		return err
	}
	if p.MariaDB != "" {
		if p.MariaDBInstall, err = enginetest.FindProgram("mariadb-install-db"); err != nil {
			p.MariaDB = "" // it cannot be set up
		}
	}
	return nil
}

func databaseVersion(path string) (string, error) {
	out, err := exec.Command(path, "--no-defaults", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	// "mysqld  Ver 9.7.4 for …", whatever the path before it is.
	_, version, found := strings.Cut(strings.TrimSpace(string(out)), "Ver ")
	if !found {
		return "", fmt.Errorf("%s --version: %s", path, out)
	}
	return version, nil
}

// tidbVersion asks the server at a URL.
func tidbVersion(rawURL string) string {
	version, err := enginetest.Version(rawURL)
	if err != nil {
		return err.Error()
	}
	_, own, _ := strings.Cut(version, "TiDB-v")
	return own
}

func (p *Programs) server(e Engine) string {
	switch e {
	case MySQL:
		return p.MySQL
	case TiDB:
		return p.TiDB
	default:
		return p.MariaDB
	}
}

// Lacks returns why a system cannot be run; nil if it can.
func (p *Programs) Lacks(s System) error {
	if s.Engine.Server() && p.server(s.Engine) == "" {
		return fmt.Errorf("there is no %s on this machine, or, of a tidb, %s is not set", s.Engine, enginetest.EnvTiDB)
	}
	for _, c := range []struct {
		product Product
		path    string
	}{{Etcd, p.Etcd}, {Sqlbrain, p.Sqlbrain}, {Kine, p.Kine}} {
		if c.product == s.Product && c.path == "" {
			return fmt.Errorf("%s was not built", c.product)
		}
	}
	return nil
}

// Build builds the products in dir. module is the directory of integration/bench; the peers are
// built in the modules of integration/programs. Existing programs are built again, which takes seconds if
// nothing changed. If module is "", they are used as they are. The first build takes
// minutes for kine.
func (p *Programs) Build(ctx context.Context, module, dir string, products ...Product) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, b := range []struct {
		product Product
		in, pkg string
		path    *string
	}{
		{Sqlbrain, filepath.Join(module, "..", ".."), "./cmd/sqlbrain", &p.Sqlbrain},
		{Etcd, filepath.Join(module, "..", "programs", "etcd"), "go.etcd.io/etcd/server/v3", &p.Etcd},
		// With a C compiler kine has the SQLite driver that it is released with.
		{Kine, filepath.Join(module, "..", "programs", "kine"), "github.com/k3s-io/kine", &p.Kine},
	} {
		if !slices.Contains(products, b.product) {
			continue
		}
		path, err := filepath.Abs(filepath.Join(dir, string(b.product)))
		if err != nil {
			return err
		}
		if *b.path = path; module == "" {
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("%s is missing, and is not built without --module: %w", b.product, err)
			}
			continue
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-o", path, b.pkg)
		cmd.Dir = b.in
		if out, err := cmd.CombinedOutput(); err != nil {
			return errors.Join(ctx.Err(), fmt.Errorf("build %s: %w\n%s", b.product, err, out))
		}
	}
	return nil
}

// Versions returns the version of each program.
func (p *Programs) Versions() map[string]string {
	versions := map[string]string{}
	for product, path := range map[Product]string{Sqlbrain: p.Sqlbrain, Etcd: p.Etcd, Kine: p.Kine} {
		if path == "" {
			continue
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			versions[string(product)] = err.Error()
			continue
		}
		version := info.Main.Version
		for _, set := range info.Settings {
			if version == "(devel)" && set.Key == "vcs.revision" {
				version = set.Value
			}
		}
		version += ", " + info.GoVersion
		for _, d := range info.Deps {
			if product != Etcd && (d.Path == "github.com/mattn/go-sqlite3" || d.Path == "modernc.org/sqlite") &&
				usesSQLite(product, info, d.Path) {
				version += ", " + d.Path + " " + d.Version
			}
		}
		versions[string(product)] = version
	}
	for engine, path := range map[Engine]string{MySQL: p.MySQL, MariaDB: p.MariaDB, TiDB: p.TiDB} {
		if path == "" {
			continue
		}
		if engine == TiDB {
			versions[string(engine)] = tidbVersion(path)
			continue
		}
		version, err := databaseVersion(path)
		if err != nil {
			version = err.Error()
		}
		versions[string(engine)] = version
	}
	return versions
}

// usesSQLite reports whether a product uses this driver of SQLite: kine's depends
// on how it was built.
func usesSQLite(product Product, info *buildinfo.BuildInfo, driver string) bool {
	if product == Sqlbrain {
		return true
	}
	cgo := false
	for _, s := range info.Settings {
		cgo = cgo || s.Key == "CGO_ENABLED" && s.Value == "1"
	}
	return cgo == (driver == "github.com/mattn/go-sqlite3")
}
