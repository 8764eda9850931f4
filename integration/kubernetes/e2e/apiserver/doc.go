// Package apiserver runs the real kube-apiserver on sqlbrain and asks it what
// Kubernetes' own clients ask, while it and its store are disturbed.
//
// The tests verify: objects that the API server acknowledged exist, at the resource
// versions it returned; lists, watches and informers agree, while nodes of
// sqlbrain or the database under it end and come back; and the API server's own
// checks (readiness, consistent reads from its cache, the digest of its cache
// against the store) say so too.
//
// The API server takes minutes to build when it is first needed, and its own check of
// its cache takes as long to come round, so that the tests are no part of make test-all:
// make kubernetes SUITE=e2e runs them, with SQLBRAIN_LONG=1 in a longer form. With
// SQLBRAIN_INTEGRATION_TARGET=etcd everything runs on a real etcd, which shows
// that the expectations are right.
//
// Start reading at objects_test.go; for what happens under faults, at
// disturbance_test.go and traffic_test.go.
package apiserver
