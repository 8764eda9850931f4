package clients

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

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
