package server

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/auth"
)

// kvServer serves etcd's KV service; each RPC has a file of its own.
type kvServer struct {
	pb.UnsafeKVServer // a method missing is a compile error

	backend  kvBackend
	guard    *auth.Guard
	headers  headers
	counts   *kvCounters
	maxBytes int // largest request that writes
	maxOps   int // see checkTxn
}
