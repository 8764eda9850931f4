package etcd

import (
	"context"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
)

// lockServer serves etcd's Lock service.
type lockServer struct {
	v3lockpb.UnsafeLockServer // a method missing is a compile error

	concurrency *concurrency
}

// Lock answers when the caller has the lock: when of the keys under the lock's
// name the caller's is the oldest. Without a lease in the request the key hangs
// on a new one of 60 s, which is the caller's to renew.
func (s *lockServer) Lock(ctx context.Context, r *v3lockpb.LockRequest) (*v3lockpb.LockResponse, error) {
	return call(ctx, s.concurrency, v3lock.NewLockServer, v3lockpb.LockServer.Lock, r)
}

// Unlock deletes the key that Lock answered with.
func (s *lockServer) Unlock(ctx context.Context, r *v3lockpb.UnlockRequest) (*v3lockpb.UnlockResponse, error) {
	return call(ctx, s.concurrency, v3lock.NewLockServer, v3lockpb.LockServer.Unlock, r)
}
