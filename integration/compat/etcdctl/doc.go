// Package etcdctl compares what etcdctl prints with sqlbrain and with etcd, command by command.
//
// Start reading at guides_test.go; commands_test.go has the longest script.
package etcdctl
