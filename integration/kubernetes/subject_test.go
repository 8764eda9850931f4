package kubernetes

import (
	"os"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// subject is what the tests run on.
type subject struct {
	name, title string
	// product is the database server's; "" with SQLite and etcd.
	product enginetest.Product
	// follower has every test talk to a node that does not lead, one of three.
	follower bool
	// short has a few tests run here without SQLBRAIN_LONG, too.
	short bool
}

// sqlbrainSubjects are one node on every engine, and a follower on every database
// server.
func sqlbrainSubjects() []subject {
	subjects := []subject{{name: "sqlite", title: "SQLite", short: true}}
	for _, p := range enginetest.Products() {
		subjects = append(subjects, subject{name: string(p), title: titleOf(p), product: p})
	}
	for i, p := range enginetest.Products() {
		subjects = append(subjects, subject{name: string(p) + "-follower", title: "a follower, " + titleOf(p), product: p,
			follower: true, short: i == 0})
	}
	return subjects
}

func titleOf(p enginetest.Product) string {
	return strings.NewReplacer("mariadb", "MariaDB", "mysql", "MySQL", "tidb", "TiDB").Replace(string(p))
}

// subjects are those, or etcd.
func subjects() []subject {
	if harness.TargetIsEtcd() {
		return []subject{{name: "etcd", title: "etcd", short: true}}
	}
	return sqlbrainSubjects()
}

// environment returns the environment variables for the module's tests, and the version
// of the database server. It skips t if the server is not available.
func (s subject) environment(t *testing.T) (env []string, version string) {
	t.Helper()
	if harness.TargetIsEtcd() {
		return os.Environ(), ""
	}
	env = append(os.Environ(), "SQLBRAIN_PROGRAM="+harness.Sqlbrain(t))
	if s.product != "" {
		d := serveDatabases(t, s.product)
		env, version = append(env, "SQLBRAIN_TEST_DATASTORES="+d.url), d.version
	}
	if s.follower {
		env = append(env, "SQLBRAIN_FOLLOWER=1")
	}
	return env, version
}
