package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/integration/internal/cluster"
	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	workers = 4
	// settled is how many writes are acknowledged between two changes.
	settled = 150
)

// root is the user of all clients.
var root = harness.Login{User: "root", Password: "rootpw"}

// cheap makes passwords cheap to check.
const cheap = "--bcrypt-cost=4"

// TestRollingUpgrade upgrades three members under load, the leader last, and takes them back. No request fails, the
// history is linearizable, every watch is exact, no lease ends early, and all members have the same data.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	old, current := previous(t), harness.Sqlbrain(t)
	test := func(t *testing.T, p enginetest.Product) {
		c := cluster.Start(t, cluster.Config{Product: p, Programs: []string{old}, Patient: true, Extra: []string{cheap}})
		protect(t, c)
		u := &upgrade{t: t, c: c, s: siege.Lay(t, c, workers, wait)}
		u.leases = keepLeases(t, c, u.s.Recorder)
		u.s.Progress(settled)
		u.change("from the previous version", current)
		u.accepted(old)
		u.change("back to the previous version", old)
		u.leases.end()
		u.s.End()
		require.Empty(t, u.s.Load.Errors(), "requests failed that the client was not to see: %s", u.s.Load.Describe())
		u.same()
		u.accepted(current)
	}
	if harness.Long() {
		harness.ForEachServer(t, test)
		return
	}
	test(t, "")
}

// protect makes users, and switches authentication on.
func protect(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	client := c.Client()
	_, err := client.UserAdd(ctx, root.User, root.Password)
	require.NoError(t, err)
	_, err = client.UserGrantRole(ctx, root.User, "root")
	require.NoError(t, err)
	_, err = client.AuthEnable(ctx)
	require.NoError(t, err)
	c.LogIn(root)
}

// upgrade is a cluster under load whose members change their version.
type upgrade struct {
	t      *testing.T
	c      *cluster.Cluster
	s      *siege.Siege
	leases *leases
}

// change restarts all members with a program, the leader last. In between each version leads, with followers of the
// other one.
func (u *upgrade) change(what, program string) {
	u.t.Helper()
	leader := u.c.Leader()
	followers := slices.DeleteFunc([]int{0, 1, 2}, func(n int) bool { return n == leader })
	u.step(what+": restart a follower", func() { u.restart(followers[0], program) })
	u.step(what+": it leads", func() { u.lead(followers[0]) })
	u.step(what+": the other version leads", func() { u.lead(leader) })
	u.step(what+": restart the other follower", func() { u.restart(followers[1], program) })
	u.step(what+": restart the leader", func() { u.restart(leader, program) })
}

// step does something to the cluster, and waits for writes after it.
func (u *upgrade) step(what string, do func()) {
	u.t.Helper()
	began := time.Now()
	do()
	u.s.Progress(settled)
	u.t.Logf("%s: no write was acknowledged for %s at most", what, u.s.Gap(began).Round(time.Millisecond))
}

func (u *upgrade) restart(n int, program string) {
	u.t.Helper()
	u.c.Stop(n)
	u.c.Node(n).Use(program)
	u.c.Start(n)
}

// lead has the leadership moved to a member until it leads. On a busy machine another one may lead by the time that it is asked.
func (u *upgrade) lead(member int) {
	u.t.Helper()
	client := u.c.Node(member).Client()
	eventually.Nil(u.t, wait, func(ctx context.Context) error {
		leader := u.c.Leader()
		if leader == member {
			return nil
		}
		st, err := client.Status(ctx, u.c.Node(member).Endpoint())
		if err == nil {
			_, err = u.c.Node(leader).Client().MoveLeader(ctx, st.Header.MemberId)
		}
		return errors.Join(fmt.Errorf("node %d leads", leader), err)
	})
}

// accepted requires that a version's doctor finds nothing wrong with the database.
func (u *upgrade) accepted(program string) {
	u.t.Helper()
	out := harness.Run(u.t, wait, "", program, "doctor", "--datastore", u.c.Datastore())
	require.Zero(u.t, out.Code, "doctor: %s%s", out.Stdout, out.Stderr)
}

// same requires that all members have the same hash of all keys, and the same snapshot.
func (u *upgrade) same() {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), wait)
	defer cancel()
	var hashes []string
	var snapshots []map[string]map[string]string
	for n := range u.c.Size() {
		client := u.c.Node(n).Client()
		_, err := client.Get(ctx, "x") // linearizable: it has applied all that was acknowledged
		require.NoError(u.t, err)
		hashes = append(hashes, hash(ctx, u.t, client))
		snapshots = append(snapshots, snapshot(ctx, u.t, client))
	}
	for n := range u.c.Size() {
		require.Equal(u.t, hashes[0], hashes[n], "HashKV of node %d", n)
		delete(snapshots[n], "meta") // has a number of the newest commit, of leases' clocks also
		for bucket, content := range snapshots[0] {
			require.True(u.t, maps.Equal(content, snapshots[n][bucket]), "bucket %s of the snapshot of node %d", bucket, n)
		}
	}
}

func hash(ctx context.Context, t *testing.T, c *clientv3.Client) string {
	t.Helper()
	h, err := c.HashKV(ctx, c.Endpoints()[0], 0)
	require.NoError(t, err)
	return fmt.Sprintf("%08x at revision %d, compacted at %d", h.Hash, h.HashRevision, h.CompactRevision)
}

// snapshot returns all that a member's snapshot holds, by bucket, except for how long leases still live.
func snapshot(ctx context.Context, t *testing.T, c *clientv3.Client) map[string]map[string]string {
	t.Helper()
	r, err := c.Snapshot(ctx)
	require.NoError(t, err)
	defer r.Close() //nolint:errcheck // all of it was read
	file, err := os.Create(filepath.Join(t.TempDir(), "snapshot"))
	require.NoError(t, err)
	_, err = io.Copy(file, r)
	require.NoError(t, errors.Join(err, file.Close()))
	db, err := bolt.Open(file.Name(), 0o600, &bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	all := map[string]map[string]string{}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			bucket := map[string]string{}
			all[string(name)] = bucket
			return b.ForEach(func(k, v []byte) error {
				if string(name) == "lease" {
					var l leasepb.Lease
					if err := proto.Unmarshal(v, &l); err != nil {
						return err
					}
					l.RemainingTTL = 0
					v = []byte(l.String())
				}
				bucket[string(k)] = string(v)
				return nil
			})
		})
	})
	require.NoError(t, errors.Join(err, db.Close()))
	require.NotEmpty(t, all["key"])
	require.NotEmpty(t, all["authUsers"])
	return all
}
