package harness

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// EnvTarget, if "etcd", runs the tests against real etcd.
const EnvTarget = "SQLBRAIN_INTEGRATION_TARGET"

// TargetIsEtcd reports whether nodes are etcd rather than sqlbrain.
func TargetIsEtcd() bool { return os.Getenv(EnvTarget) == "etcd" }

// Engine is a database that sqlbrain can run on.
type Engine struct {
	Name string
	// Datastore makes an empty database that is gone when t ends, and returns
	// its URL. It skips t where there is no such engine.
	Datastore func(t testing.TB) string
}

// SQLite and MySQL are the engines. MySQL is MariaDB where that is installed.
var (
	SQLite = Engine{"sqlite", func(t testing.TB) string {
		return "sqlite://" + filepath.Join(t.TempDir(), "data.db")
	}}
	MySQL = Engine{"mysql", enginetest.MySQL}
)

// ForEachEngine runs a subtest on every engine; only one if the target is etcd,
// which has its own.
func ForEachEngine(t *testing.T, test func(t *testing.T, e Engine)) {
	t.Helper()
	engines := []Engine{SQLite, MySQL}
	if TargetIsEtcd() {
		engines = []Engine{{"etcd", func(t testing.TB) string { return filepath.Join(t.TempDir(), "etcd") }}}
	}
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) { test(t, e) })
	}
}

// NeedsDatabase skips a test that is about the database under sqlbrain.
func NeedsDatabase(t testing.TB) {
	t.Helper()
	if TargetIsEtcd() {
		t.Skip("about the database under sqlbrain; the target is etcd")
	}
}
