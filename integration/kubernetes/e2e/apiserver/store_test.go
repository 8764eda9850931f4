package apiserver

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// store is what an API server keeps its data in.
type store struct {
	endpoints []string
	node      *harness.Node      // the only one, over SQLite
	cluster   *harness.Cluster   // three, over anything else
	database  *enginetest.Server // nil with SQLite and etcd
}

// forEachStore runs a subtest on one node over SQLite and on three over a database
// server of each product; only on three of etcd if that is the target.
func forEachStore(t *testing.T, test func(t *testing.T, s *store)) {
	t.Helper()
	if !harness.TargetIsEtcd() {
		t.Run("sqlite", func(t *testing.T) {
			n := harness.StartNode(t, harness.SQLite)
			test(t, &store{endpoints: []string{n.Endpoint()}, node: n})
		})
	}
	forEachCluster(t, test)
}

// forEachCluster is forEachStore without SQLite.
func forEachCluster(t *testing.T, test func(t *testing.T, s *store)) {
	t.Helper()
	if harness.TargetIsEtcd() {
		t.Run("etcd", func(t *testing.T) { test(t, startThree(t, "")) })
		return
	}
	for _, p := range enginetest.Products() {
		t.Run(string(p), func(t *testing.T) { test(t, startThree(t, p)) })
	}
}

func startThree(t *testing.T, p enginetest.Product) *store {
	t.Helper()
	c := harness.StartCluster(t, harness.ClusterConfig{Product: p})
	return &store{endpoints: c.Endpoints(), cluster: c, database: c.Database()}
}

// client returns a client of the store itself.
func (s *store) client(t testing.TB) *clientv3.Client { return harness.ClientOf(t, s.endpoints...) }
