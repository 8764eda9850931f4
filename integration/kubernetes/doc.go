// Package kubernetes runs kube-apiserver's own tests of its storage on sqlbrain:
// the packages of k8s.io/apiserver that hold the etcd store, the cache before it
// and the factory that connects them.
//
// The module's directory is copied out of the module cache into a temporary one,
// and the one function through which those tests start a server is replaced
// (testdata/testserver): each test gets a separate sqlbrain on an empty database.
// The results are reported test by test, like tests of this package.
//
// They run on one node over SQLite, MariaDB and MySQL, and through a follower, a node
// that does not lead, one of three.
//
// All of it takes many minutes and needs SQLBRAIN_LONG=1, as make kubernetes sets it;
// otherwise a few of the tests run:
//
//	SQLBRAIN_LONG=1 go test ./kubernetes -timeout 2h -v
//	go test ./kubernetes -run '/sqlite$' -v -tests 'TestWatch.*'
//
// With SQLBRAIN_INTEGRATION_TARGET=etcd nothing is replaced, and the tests run
// on the etcd they were written for.
//
// Start reading at suite_test.go.
package kubernetes
