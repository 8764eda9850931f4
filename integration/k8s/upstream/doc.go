// Package upstream runs Kubernetes' own integration tests on sqlbrain: those that
// are about what the API server keeps and tells. They start their API servers in
// their own process and share one store, each test under a prefix of its own.
//
// The tests are built from the module cache as they are, which takes minutes the
// first time. Left out are tests that start an etcd of their own, with flags of
// etcd's, and tests that write into their source directory.
package upstream
