// Package upstream runs Kubernetes' own integration tests on sqlbrain: those that
// are about lists, watches and storage. They start their API servers in their own
// process and share one store, each test under a separate prefix.
//
// The tests are built from the module cache as they are, which takes minutes the
// first time. Tests that start a separate etcd with etcd's flags, and tests that
// write into their source directory, are left out.
package upstream
