// Package kubernetes runs kube-apiserver's own tests of its storage on sqlbrain:
// the packages of k8s.io/apiserver that hold the etcd store, the cache before it
// and the factory that connects them.
//
// The module's directory is copied out of the module cache into a temporary one,
// and the one function through which those tests start a server is replaced
// (testdata/testserver): each test gets a sqlbrain of its own on an empty
// database. The results are told test by test, as if they were written here.
//
// It takes minutes, so it runs only with SQLBRAIN_LONG=1:
//
//	SQLBRAIN_LONG=1 go test ./kubernetes -timeout 60m -v
//	SQLBRAIN_LONG=1 SQLBRAIN_KUBERNETES_RUN='TestWatch.*' go test ./kubernetes -run '/sqlite$' -v
//
// With SQLBRAIN_INTEGRATION_TARGET=etcd nothing is replaced, and the tests run
// on the etcd they were written for.
//
// Start reading at suite_test.go.
package kubernetes
