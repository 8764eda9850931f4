package clients

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
