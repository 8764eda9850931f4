package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
)

// concurrency is what the Lock and Election services share. They are etcd's own,
// and recipes of etcd's client: a lease, a transaction, a watch on who came
// earlier. Their client is this server's, in the process, so that what they ask
// is checked, and forwarded where need be, as if the caller had asked it.
//
// A call may wait for hours. When the server stops, all of them are ended first:
// one that waits takes its key back, and needs the server for that.
type concurrency struct {
	kv      clientv3.KV
	lease   clientv3.Lease
	watcher clientv3.Watcher
	guard   *guard.Guard

	ctx context.Context // ends when the calls must
	end context.CancelFunc

	mu    sync.Mutex // no call begins while ctx is being ended
	calls sync.WaitGroup
}

// keepAliveTimeout is after how long without an answer a lease's renewals are
// given up. The services renew a lease no more than once.
const keepAliveTimeout = time.Second

func newConcurrency(g *guard.Guard, connect func() (*grpc.ClientConn, error)) (*concurrency, error) {
	conn, err := connect()
	if err != nil {
		return nil, err
	}
	c := &concurrency{guard: g}
	c.ctx, c.end = context.WithCancel(context.Background())
	plain := clientv3.NewCtxClient(c.ctx) // lends them a logger and no more
	// These clients ask once. The usual ones repeat what failed, which callers do
	// as they see fit.
	c.kv = clientv3.NewKVFromKVClient(pb.NewKVClient(conn), plain)
	c.lease = clientv3.NewLeaseFromLeaseClient(pb.NewLeaseClient(conn), plain, keepAliveTimeout)
	c.watcher = clientv3.NewWatchFromWatchClient(pb.NewWatchClient(conn), plain)
	return c, nil
}

// run calls f with a client for one call. The client's own context has the
// caller's metadata but outlives the call: what f cleans up with after the caller
// has gone must be allowed to whom the call was.
func (c *concurrency) run(ctx context.Context, f func(context.Context, *clientv3.Client) error) error {
	if !c.begin() {
		return rpctypes.ErrGRPCStopped
	}
	defer c.calls.Done()
	ctx, cancel := context.WithCancelCause(metadata.NewOutgoingContext(ctx, c.guard.Inner(ctx)))
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(rpctypes.ErrGRPCStopped) })()

	client := clientv3.NewCtxClient(context.WithoutCancel(ctx))
	client.KV, client.Lease, client.Watcher = c.kv, c.lease, c.watcher
	err := f(ctx, client)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, rpctypes.ErrGRPCStopped) {
		return cause
	}
	return recipeError(err)
}

// call runs one method of a service of etcd's.
func call[S, Req, Resp any](ctx context.Context, c *concurrency, service func(*clientv3.Client) S,
	method func(S, context.Context, Req) (Resp, error), r Req) (resp Resp, err error) {
	err = c.run(ctx, func(ctx context.Context, client *clientv3.Client) (err error) {
		resp, err = method(service(client), ctx, r)
		return err
	})
	return resp, err
}

func (c *concurrency) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.calls.Add(1)
	return true
}

// recipeError answers as etcd does: what its client makes of the errors it knows,
// and the recipes' own, are texts without a code. Contexts' errors and those that
// etcd's client does not know go on as they are.
func recipeError(err error) error {
	if _, ok := status.FromError(err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return status.Error(codes.Unknown, err.Error())
}

// stop ends the calls, and refuses new ones. It is called once.
func (c *concurrency) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
}

// close waits until the calls that were stopped have returned, or ctx ends, and
// ends what the client has running. Until then the server must answer.
func (c *concurrency) close(ctx context.Context) {
	idle := make(chan struct{})
	go func() {
		c.calls.Wait() // the server's end ends the calls, if ctx does not wait for them
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	// Their errors would only report that their contexts ended.
	_ = c.watcher.Close()
	_ = c.lease.Close()
}
