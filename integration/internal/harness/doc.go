// Package harness builds sqlbrain, etcd and etcdctl and runs each as a separate
// process.
//
// Invariants:
//
//   - A node is ready only when it answers a Get, not when its port is open.
//   - No process outlives the test binary, however that ends (on Linux).
//   - Every wait is bounded.
//   - A failed test shows the logs of its processes.
//
// With SQLBRAIN_INTEGRATION_TARGET=etcd every node is a real etcd. The tests
// hold there too, except those about databases.
//
// Start reading at node.go, then process.go and build.go.
package harness
