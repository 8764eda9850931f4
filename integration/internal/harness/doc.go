// Package harness builds and runs the programs the integration tests are about:
// sqlbrain, etcd and etcdctl, as processes of their own.
//
// What it upholds: a node is ready only when it answers a Get, not when its port
// is open; no process outlives the test binary, however that ends (on Linux);
// nothing is waited for without a bound; a failed test shows the logs of its
// processes.
//
// With SQLBRAIN_INTEGRATION_TARGET=etcd every node is a real etcd. The tests
// hold there too, except those about databases.
//
// Start reading at node.go, then process.go and build.go.
package harness
