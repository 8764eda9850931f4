// Package cluster drives several nodes of sqlbrain over one database, or a real
// etcd of as many members (SQLBRAIN_INTEGRATION_TARGET=etcd), which shows that
// the tests are right.
//
//   - rolling_test.go: all nodes restarted one after the other under load
//   - watches_test.go: thousands of watches over all nodes
//   - lock_test.go: clients' locks are the same on all nodes
//   - failover_test.go: for how long writes fail when the leader ends
//
// That all answers together are linearizable while nodes, network and database
// fail is what chaos/robustness is about.
package cluster
