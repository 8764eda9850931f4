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

// stallKeys is how many keys a lease holds, and stallRange how many a range delete
// deletes.
func stallKeys() int  { return harness.UsualOrLong(20_000, 300_000) }
func stallRange() int { return harness.UsualOrLong(10_000, 100_000) }

// forEachStallNode runs a test on a node with default settings: in the usual form on one, because only the long form
// judges times. The long form runs it on every engine, and on etcd, whose figures the log has for comparison.
func forEachStallNode(t *testing.T, test func(t *testing.T, node *harness.Node, etcd bool)) {
	if !harness.Long() {
		t.Parallel() // most of the time they wait for a lease's end
	}
	if harness.Long() || harness.TargetIsEtcd() {
		t.Run("etcd", func(t *testing.T) { test(t, harness.StartEtcd(t), true) })
	}
	if !harness.TargetIsEtcd() {
		harness.OnAnyEngine(t, func(t *testing.T, e harness.Engine) {
			test(t, harness.StartNode(t, e), false)
		})
	}
}

// startPutters returns once other clients have put for a while without anything else, for comparison.
func startPutters(t *testing.T, node *harness.Node) *harness.Putters {
	t.Helper()
	p := harness.StartPutters(t, node.Client(), node.Client(), node.Client(), node.Client())
	p.Await(500)
	p.Report("alone")
	return p
}

// requireShort judges how long a put took, and how long it took until the keys of the lease were gone.
func requireShort(t *testing.T, longest, gone time.Duration, etcd bool) {
	t.Helper()
	if harness.Long() && !etcd {
		require.LessOrEqual(t, longest, longestPut, "a put waited for a lease of others")
		require.LessOrEqual(t, gone, leaseGone)
	}
}

func keysLeft(t *testing.T, c *clientv3.Client, prefix string) int64 {
	t.Helper()
	resp, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	return resp.Count
}

// awaitKeys waits until at most so many keys are left.
func awaitKeys(t *testing.T, c *clientv3.Client, prefix string, most int64) {
	t.Helper()
	eventually.True(t, fmt.Sprintf("at most %d keys", most), func() bool { return keysLeft(t, c, prefix) <= most })
}

// TestOthersWriteWhileALargeLeaseIsRevoked has a lease of many keys revoked.
func TestOthersWriteWhileALargeLeaseIsRevoked(t *testing.T) {
	forEachStallNode(t, func(t *testing.T, node *harness.Node, etcd bool) {
		c := node.Client()
		lease, err := c.Grant(t.Context(), 3600)
		require.NoError(t, err)
		harness.Fill(t, c, "leased/", stallKeys(), "value", clientv3.WithLease(lease.ID))
		p := startPutters(t, node)
		started := time.Now()
		_, err = c.Revoke(t.Context(), lease.ID)
		took := time.Since(started)
		longest := p.Report("meanwhile")
		require.NoError(t, err)
		require.Zero(t, keysLeft(t, c, "leased/"))
		t.Logf("revoking %d keys took %s", stallKeys(), took.Round(time.Millisecond))
		requireShort(t, longest, took, etcd)
	})
}

// TestOthersWriteWhileALargeLeaseExpires has a lease of many keys expire after a
// restart, when no key is cached.
func TestOthersWriteWhileALargeLeaseExpires(t *testing.T) {
	forEachStallNode(t, func(t *testing.T, node *harness.Node, etcd bool) {
		c := node.Client()
		const ttl = 20
		lease, err := c.Grant(t.Context(), ttl)
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
		p := startPutters(t, node)
		started := time.Now()
		awaitKeys(t, c, "leased/", int64(stallKeys())-1)
		began := time.Now()
		awaitKeys(t, c, "leased/", 0)
		took := time.Since(began)
		longest := p.Report("meanwhile")
		t.Logf("%d keys were gone %s after the first, which was %s after the restart", stallKeys(),
			took.Round(time.Millisecond), began.Sub(started).Round(time.Second))
		requireShort(t, longest, took, etcd)
	})
}

// TestOthersWriteWhileALargeLeaseIsUsed has a user who is not root put keys with a
// lease of many keys, each of which the user must be permitted to write.
func TestOthersWriteWhileALargeLeaseIsUsed(t *testing.T) {
	forEachStallNode(t, func(t *testing.T, node *harness.Node, etcd bool) {
		c := node.Client()
		lease, err := c.Grant(t.Context(), 3600)
		require.NoError(t, err)
		harness.Fill(t, c, "leased/", stallKeys(), "value", clientv3.WithLease(lease.ID))
		for _, run := range []func() error{
			func() error { _, err := c.UserAdd(t.Context(), "root", "secret"); return err },
			func() error { _, err := c.UserGrantRole(t.Context(), "root", "root"); return err },
			func() error { _, err := c.RoleAdd(t.Context(), "writer"); return err },
			func() error {
				_, err := c.RoleGrantPermission(t.Context(), "writer", "\x00", "\x00",
					clientv3.PermissionType(clientv3.PermReadWrite))
				return err
			},
			func() error { _, err := c.UserAdd(t.Context(), "user", "secret"); return err },
			func() error { _, err := c.UserGrantRole(t.Context(), "user", "writer"); return err },
			func() error { _, err := c.AuthEnable(t.Context()); return err },
		} {
			require.NoError(t, run())
		}
		user := func() *clientv3.Client {
			uc, err := clientv3.New(clientv3.Config{Endpoints: []string{node.Endpoint()}, Username: "user", Password: "secret",
				DialTimeout: eventually.Deadline})
			require.NoError(t, err)
			t.Cleanup(func() { _ = uc.Close() })
			return uc
		}
		own, began := user(), time.Now()
		others := harness.StartPutters(t, user())
		var longestOwn time.Duration
		puts := 0
		for time.Since(began) < 5*time.Second {
			started := time.Now()
			_, err := own.Put(t.Context(), fmt.Sprintf("leased/new/%d", puts), "x", clientv3.WithLease(lease.ID))
			require.NoError(t, err)
			longestOwn = max(longestOwn, time.Since(started))
			puts++
		}
		t.Logf("%d puts with the lease, the longest took %s", puts, longestOwn.Round(time.Millisecond))
		requireShort(t, others.Report("meanwhile"), 0, etcd)
	})
}

// TestALargeRangeDeleteIsOneRevision reports how long others wait for it.
func TestALargeRangeDeleteIsOneRevision(t *testing.T) {
	forEachStallNode(t, func(t *testing.T, node *harness.Node, _ bool) {
		c := node.Client()
		harness.Fill(t, c, "range/", stallRange(), "value")
		p := startPutters(t, node)
		started := time.Now()
		resp, err := c.Delete(t.Context(), "range/", clientv3.WithPrefix())
		took := time.Since(started)
		p.Report("meanwhile")
		require.NoError(t, err)
		require.EqualValues(t, stallRange(), resp.Deleted)
		t.Logf("deleting %d keys took %s", stallRange(), took.Round(time.Millisecond))
	})
}
