package containers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

const (
	tourWait = 10 * time.Minute
	// compatWait includes building etcd.
	compatWait = 20 * time.Minute
)

// tour leads through what clients do with the built program, and over a crash.
func tour(t *testing.T, datastore string) {
	ctx, cancel := context.WithTimeout(t.Context(), tourWait)
	defer cancel()
	node := harness.StartNodeOn(t, datastore)
	c := node.Client()
	large := strings.Repeat("v", 1<<20)

	put, err := c.Put(ctx, "/a", "1")
	require.NoError(t, err)
	first := put.Header.Revision
	require.EqualValues(t, 2, first)
	events := make(map[string]int64) // type and key to revision
	watch := c.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(first))
	seen := func(kind, key string) {
		t.Helper()
		for events[kind+" "+key] == 0 {
			answer, ok := <-watch
			require.True(t, ok, "the watch ended before %s %s", kind, key)
			require.NoError(t, answer.Err())
			for _, e := range answer.Events {
				events[e.Type.String()+" "+string(e.Kv.Key)] = e.Kv.ModRevision
			}
		}
	}
	seen("PUT", "/a")

	// A transaction is whole, and only if its compares hold.
	for i, succeeds := range []bool{true, false} {
		txn, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("/a"), "=", first)).
			Then(clientv3.OpPut("/a", "2"), clientv3.OpPut("/b", large)).Else(clientv3.OpGet("/a")).Commit()
		require.NoError(t, err)
		require.Equal(t, succeeds, txn.Succeeded, "transaction %d", i)
		require.Equal(t, first+1, txn.Header.Revision)
	}
	seen("PUT", "/b")
	require.Equal(t, first+1, events["PUT /a"])
	old, err := c.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(first))
	require.NoError(t, err)
	require.Len(t, old.Kvs, 1)
	require.Equal(t, "1", string(old.Kvs[0].Value))

	// Keys end with their lease, whether it is revoked or runs out.
	revoked, err := c.Grant(ctx, 3600)
	require.NoError(t, err)
	expires, err := c.Grant(ctx, 5) // long enough to put the key
	require.NoError(t, err)
	_, err = c.Put(ctx, "/revoked", "x", clientv3.WithLease(revoked.ID))
	require.NoError(t, err)
	_, err = c.Put(ctx, "/expires", "x", clientv3.WithLease(expires.ID))
	require.NoError(t, err)
	_, err = c.Revoke(ctx, revoked.ID)
	require.NoError(t, err)
	seen("DELETE", "/revoked")
	seen("DELETE", "/expires")

	// History ends at a compaction, for reads and watches.
	var newest int64
	for i := range 100 {
		put, err := c.Put(ctx, "/many", fmt.Sprint(i))
		require.NoError(t, err)
		newest = put.Header.Revision
	}
	_, err = c.Compact(ctx, newest-10, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	_, err = c.Get(ctx, "/many", clientv3.WithRev(newest-11))
	require.ErrorIs(t, err, rpctypes.ErrCompacted)
	cancelled := <-c.Watch(ctx, "/many", clientv3.WithRev(first))
	require.Equal(t, newest-10, cancelled.CompactRevision)

	// All of it outlives the process.
	node.Kill()
	node.Start()
	all, err := c.Get(ctx, "/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Equal(t, newest, all.Header.Revision)
	values := map[string]string{}
	for _, kv := range all.Kvs {
		values[string(kv.Key)] = string(kv.Value)
	}
	require.Equal(t, map[string]string{"/a": "2", "/b": large, "/many": "99"}, values)
	kept, err := c.Get(ctx, "/many", clientv3.WithRev(newest-5))
	require.NoError(t, err)
	require.Equal(t, "94", string(kept.Kvs[0].Value))

	doctor := harness.Run(t, tourWait, "", harness.Sqlbrain(t), "doctor", "--datastore", datastore)
	require.Zero(t, doctor.Code, "%s%s", doctor.Stdout, doctor.Stderr)
	t.Logf("doctor:\n%s", doctor.Stdout)
}
