// Package etcdctl compares what etcdctl prints with sqlbrain and with etcd, command by command.
//
// Start reading at e2e_test.go, then guides_test.go, which types etcd's guides.
package etcdctl
