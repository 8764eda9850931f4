package server

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
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
func (s *lockServer) Lock(ctx context.Context, r *v3lockpb.LockRequest) (resp *v3lockpb.LockResponse, err error) {
	err = s.concurrency.run(ctx, func(ctx context.Context, c *clientv3.Client) (err error) {
		resp, err = v3lock.NewLockServer(c).Lock(ctx, r)
		return err
	})
	return resp, err
}

// Unlock deletes the key that Lock answered with.
func (s *lockServer) Unlock(ctx context.Context, r *v3lockpb.UnlockRequest) (resp *v3lockpb.UnlockResponse, err error) {
	err = s.concurrency.run(ctx, func(ctx context.Context, c *clientv3.Client) (err error) {
		resp, err = v3lock.NewLockServer(c).Unlock(ctx, r)
		return err
	})
	return resp, err
}
