// Package mvcc has the requests, answers and errors that the layers of the store share:
// what etcd's KV requests say, validated and without protobuf.
//
// The package reads and writes nothing, and imports nothing of the store
// but its row formats. Rules of etcd that need only a request and records are here
// (Finish, Matches, Cost), so that the write path and the read path agree on them. They
// are tested against etcd in integration/compat, and by range_test.go and txn_test.go.
package mvcc
