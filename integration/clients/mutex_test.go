package clients

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sync/errgroup"
)

// TestMutexExcludes: increments that read and write in two steps are not lost
// under a mutex.
func TestMutexExcludes(t *testing.T) {
	const workers, increments = 5, 12
	n, ctx := start(t), bounded(t)
	var group errgroup.Group
	var holders atomic.Int32
	for range workers {
		s := newSession(t, n, 60)
		m := concurrency.NewMutex(s, "/lock")
		group.Go(func() error {
			for range increments {
				if err := m.Lock(ctx); err != nil {
					return err
				}
				if h := holders.Add(1); h != 1 {
					t.Errorf("%d hold the mutex", h)
				}
				if err := increment(ctx, s.Client(), m); err != nil {
					return err
				}
				holders.Add(-1)
				if err := m.Unlock(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, map[string]string{"counter": strconv.Itoa(workers * increments)}, contents(t, n.Client(), "counter"))
	require.Empty(t, contents(t, n.Client(), "/lock"), "an unlocked mutex leaves nothing")
}

func increment(ctx context.Context, c *clientv3.Client, m *concurrency.Mutex) error {
	r, err := c.Get(ctx, "counter")
	if err != nil {
		return err
	}
	count := 0
	if len(r.Kvs) > 0 {
		if count, err = strconv.Atoi(string(r.Kvs[0].Value)); err != nil {
			return err
		}
	}
	// As owner only, as the documentation demands.
	w, err := c.Txn(ctx).If(m.IsOwner()).Then(clientv3.OpPut("counter", strconv.Itoa(count+1))).Commit()
	if err == nil && !w.Succeeded {
		err = concurrency.ErrSessionExpired
	}
	return err
}

func TestMutexTryLock(t *testing.T) {
	n, ctx := start(t), bounded(t)
	one := concurrency.NewMutex(newSession(t, n, 60), "/lock")
	two := concurrency.NewMutex(newSession(t, n, 60), "/lock")
	require.NoError(t, one.TryLock(ctx))
	require.NoError(t, one.TryLock(ctx), "the owner has it already")
	require.ErrorIs(t, two.TryLock(ctx), concurrency.ErrLocked)
	require.Len(t, contents(t, n.Client(), "/lock"), 1, "who did not get it leaves nothing")
	require.NoError(t, one.Unlock(ctx))
	require.NoError(t, two.TryLock(ctx))
	require.ErrorIs(t, one.Unlock(ctx), concurrency.ErrLockReleased)
	require.NoError(t, two.Unlock(ctx))
}

// TestMutexPassesOn: a waiter gets the mutex when its holder's session ends,
// with notice or without.
func TestMutexPassesOn(t *testing.T) {
	for name, end := range map[string]func(*concurrency.Session) error{
		"Closed": (*concurrency.Session).Close,
		// The lease ends when its time is up.
		"Orphaned": func(s *concurrency.Session) error { s.Orphan(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, ctx := start(t), bounded(t)
			holder, waiter := newSession(t, n, 15), newSession(t, n, 60)
			held, wanted := concurrency.NewMutex(holder, "/lock"), concurrency.NewMutex(waiter, "/lock")
			require.NoError(t, held.Lock(ctx))
			locked := make(chan error, 1)
			go func() { locked <- wanted.Lock(ctx) }()
			// Once its own key exists, it waits for the holder's key.
			queued := waiter.Client().Watch(ctx, "/lock", clientv3.WithPrefix(), clientv3.WithRev(held.Header().Revision+1))
			require.Len(t, (<-queued).Events, 1)
			require.NoError(t, end(holder))
			require.NoError(t, <-locked)
			require.Equal(t, map[string]string{wanted.Key(): ""}, contents(t, n.Client(), "/lock"))
		})
	}
}

// TestSessionEndsWithItsLease: also if another client revokes the lease.
func TestSessionEndsWithItsLease(t *testing.T) {
	n, ctx := start(t), bounded(t)
	s := newSession(t, n, 15)
	_, err := n.Client().Revoke(ctx, s.Lease())
	require.NoError(t, err)
	// The session learns it from the next keepalive, after a third of the TTL.
	select {
	case <-s.Done():
	case <-ctx.Done():
		t.Fatal("the session continues without its lease")
	}
	require.ErrorIs(t, concurrency.NewMutex(s, "/lock").Lock(ctx), rpctypes.ErrLeaseNotFound)
}
