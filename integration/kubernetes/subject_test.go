package kubernetes

import (
	"os"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// subject is what the tests run on.
type subject struct {
	name string
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
	subjects := []subject{{name: "sqlite", short: true}}
	for _, p := range enginetest.Products() {
		subjects = append(subjects, subject{name: string(p), product: p})
	}
	for i, p := range enginetest.Products() {
		subjects = append(subjects, subject{name: string(p) + "-follower", product: p, follower: true, short: i == 0})
	}
	return subjects
}

// subjects are those, or etcd.
func subjects() []subject {
	if harness.TargetIsEtcd() {
		return []subject{{name: "etcd", short: true}}
	}
	return sqlbrainSubjects()
}

// environment returns the environment variables for the module's tests. It skips t if the database server is not
// available.
func (s subject) environment(t *testing.T) []string {
	t.Helper()
	if harness.TargetIsEtcd() {
		return os.Environ()
	}
	env := append(os.Environ(), "TESTSERVER_PROGRAM="+harness.Sqlbrain(t))
	if s.product != "" {
		env = append(env, "TESTSERVER_DATABASES="+serveDatabases(t, s.product))
	}
	if s.follower {
		env = append(env, "TESTSERVER_FOLLOWER=1")
	}
	return env
}
