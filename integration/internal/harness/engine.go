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
	// its URL. It skips t if the engine is not available.
	Datastore func(t testing.TB) string
	// StartServer starts a server of the engine's own for t; nil if it has none.
	StartServer func(t testing.TB) *enginetest.Server
}

// SQLite needs nothing.
var SQLite = Engine{Name: "sqlite", Datastore: func(t testing.TB) string {
	return "sqlite://" + filepath.Join(t.TempDir(), "data.db")
}}

// Engines are all of them.
func Engines() []Engine {
	engines := []Engine{SQLite}
	for _, p := range enginetest.Products() {
		engines = append(engines, Engine{string(p), p.Database, p.StartServer})
	}
	return engines
}

// ForEachEngine runs a subtest on every engine, for tests to which the engine matters: how it fails, what it refuses,
// what a killed process leaves in it. If the target is etcd, there is one, which is etcd's own.
func ForEachEngine(t *testing.T, test func(t *testing.T, e Engine)) {
	t.Helper()
	engines := Engines()
	if TargetIsEtcd() {
		engines = []Engine{{Name: "etcd", Datastore: func(t testing.TB) string { return filepath.Join(t.TempDir(), "etcd") }}}
	}
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) { test(t, e) })
	}
}

// OnAnyEngine is ForEachEngine for tests to which the engine makes no difference: they are about what is above
// package sqlstore, whose own tests compare the engines. It runs a subtest on SQLite, and on every engine only if
// Long. A test on several nodes takes any database server (ClusterConfig.Product).
func OnAnyEngine(t *testing.T, test func(t *testing.T, e Engine)) {
	t.Helper()
	if Long() || TargetIsEtcd() {
		ForEachEngine(t, test)
		return
	}
	t.Run(SQLite.Name, func(t *testing.T) { test(t, SQLite) })
}

// ForEachServer runs a subtest on every product of a database server.
func ForEachServer(t *testing.T, test func(t *testing.T, p enginetest.Product)) {
	t.Helper()
	for _, p := range enginetest.Products() {
		t.Run(string(p), func(t *testing.T) { test(t, p) })
	}
}

// NeedsDatabase skips a test that is about the database under sqlbrain.
func NeedsDatabase(t testing.TB) {
	t.Helper()
	if TargetIsEtcd() {
		t.Skip("about the database under sqlbrain; the target is etcd")
	}
}
