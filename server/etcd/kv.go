package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
)

// kvServer serves etcd's KV service; each RPC has a separate file.
type kvServer struct {
	pb.UnsafeKVServer // a method missing is a compile error

	reader   Reader
	writer   Writer
	guard    *guard.Guard
	headers  headers
	counts   *kvCounters
	maxBytes int // largest request that writes
	maxOps   int // see validateTxn
}
