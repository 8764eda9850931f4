package program

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	// longestPut is how long a put of another client may take while a lease ends, on a
	// machine without other work. So the usual form reports the time only.
	longestPut = 500 * time.Millisecond
	// leaseGone is within what time the keys of a lease must be gone in the long form.
	leaseGone = time.Minute
)

// stallKeys is how many keys a lease holds.
func stallKeys() int { return harness.UsualOrLong(20_000, 300_000) }

// startPutters returns once other clients have put for a while without anything else, for comparison.
func startPutters(t *testing.T, node *harness.Node) *harness.Putters {
	t.Helper()
	p := harness.StartPutters(t, node.Client(), node.Client(), node.Client(), node.Client())
	p.Await(500)
	p.Report("alone")
	return p
}

// requireShort judges how long a put took, and how long it took until the keys of the lease were gone.
func requireShort(t *testing.T, longest, gone time.Duration) {
	t.Helper()
	if harness.Long() && !harness.TargetIsEtcd() {
		require.LessOrEqual(t, longest, longestPut, "a put waited for a lease of others")
		require.LessOrEqual(t, gone, leaseGone)
	}
}

// awaitKeys waits until at most so many leased keys are left.
func awaitKeys(t *testing.T, c *clientv3.Client, most int) {
	t.Helper()
	eventually.True(t, fmt.Sprintf("at most %d keys", most), func() bool {
		resp, err := c.Get(t.Context(), "leased/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return resp.Count <= int64(most)
	})
}

// TestOthersWriteWhileALargeLeaseEnds: it is revoked, or expires after a restart, when no key is cached.
func TestOthersWriteWhileALargeLeaseEnds(t *testing.T) {
	harness.OnAnyEngine(t, func(t *testing.T, e harness.Engine) {
		node := harness.StartNode(t, e)
		c := node.Client()
		lease, err := c.Grant(t.Context(), 3600)
		require.NoError(t, err)
		harness.Fill(t, c, "leased/", stallKeys(), "value", clientv3.WithLease(lease.ID))
		p := startPutters(t, node)
		started := time.Now()
		_, err = c.Revoke(t.Context(), lease.ID)
		require.NoError(t, err)
		awaitKeys(t, c, 0)
		requireShort(t, p.Report("revoked"), time.Since(started))

		lease, err = c.Grant(t.Context(), 20)
		require.NoError(t, err)
		alive, stop := context.WithCancel(t.Context())
		renewals, err := c.KeepAlive(alive, lease.ID)
		require.NoError(t, err)
		harness.Fill(t, c, "leased/", stallKeys(), "value", clientv3.WithLease(lease.ID))
		stop()
		for range renewals {
		}
		node.Stop()
		node.Start()
		p = startPutters(t, node)
		awaitKeys(t, c, stallKeys()-1)
		began := time.Now()
		awaitKeys(t, c, 0)
		requireShort(t, p.Report("expired"), time.Since(began))
	})
}

// TestOthersWriteWhileALargeLeaseIsUsed has a user who is not root put keys with a
// lease of many keys, each of which the user must be permitted to write.
func TestOthersWriteWhileALargeLeaseIsUsed(t *testing.T) {
	harness.OnAnyEngine(t, func(t *testing.T, e harness.Engine) {
		node, ctx := harness.StartNode(t, e), t.Context()
		c := node.Client()
		do := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
		lease, err := c.Grant(ctx, 3600)
		require.NoError(t, err)
		harness.Fill(t, c, "leased/", stallKeys(), "value", clientv3.WithLease(lease.ID))
		do(c.UserAdd(ctx, "root", "secret"))
		do(c.UserGrantRole(ctx, "root", "root"))
		do(c.RoleAdd(ctx, "writer"))
		do(c.RoleGrantPermission(ctx, "writer", "\x00", "\x00", clientv3.PermissionType(clientv3.PermReadWrite)))
		do(c.UserAdd(ctx, "user", "secret"))
		do(c.UserGrantRole(ctx, "user", "writer"))
		do(c.AuthEnable(ctx))
		user := func() *clientv3.Client {
			uc, err := clientv3.New(clientv3.Config{Endpoints: []string{node.Endpoint()}, Username: "user", Password: "secret",
				DialTimeout: eventually.Deadline})
			require.NoError(t, err)
			t.Cleanup(func() { _ = uc.Close() })
			return uc
		}
		own, others := user(), harness.StartPutters(t, user())
		for began, puts := time.Now(), 0; time.Since(began) < 5*time.Second; puts++ {
			do(own.Put(ctx, fmt.Sprintf("leased/new/%d", puts), "x", clientv3.WithLease(lease.ID)))
		}
		requireShort(t, others.Report("used"), 0)
	})
}
