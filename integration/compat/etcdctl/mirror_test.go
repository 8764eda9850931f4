package etcdctl

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// TestMovingFromEtcd goes the way that docs/etcd.md describes: etcdctl make-mirror
// while etcd is written to, then a revision above etcd's.
func TestMovingFromEtcd(t *testing.T) {
	harness.NeedsDatabase(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	source := harness.StartEtcd(t)
	datastore := harness.SQLite.Datastore(t)
	target := harness.StartNodeOn(t, datastore)
	from, to := source.Client(), target.Client()

	write := func(round int) {
		t.Helper()
		for batch := range 5 {
			var ops []clientv3.Op
			for i := range 100 {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("/registry/pods/%d/%03d", batch, i), fmt.Sprint(round, i)))
			}
			_, err := from.Txn(ctx).Then(ops...).Commit()
			require.NoError(t, err)
		}
		_, err := from.Txn(ctx).Then(clientv3.OpPut(fmt.Sprintf("/registry/round/%d", round), strings.Repeat("x", 1<<20)),
			clientv3.OpDelete("/registry/pods/1/", clientv3.WithPrefix()), clientv3.OpPut("\x00\xff binary", "\x00")).Commit()
		require.NoError(t, err)
	}
	write(1)
	lease, err := from.Grant(ctx, 600)
	require.NoError(t, err)
	_, err = from.Put(ctx, "/registry/leased", "x", clientv3.WithLease(lease.ID))
	require.NoError(t, err)

	mirror := harness.StartProcess(t, harness.Etcdctl(t), source.EtcdctlArgs("make-mirror", target.Endpoint())...)
	watch := to.Watch(ctx, "/registry/last", clientv3.WithRev(1))
	// The mirror writes in order: after the last write nothing is missing.
	arrived := func(value string) {
		t.Helper()
		for {
			select {
			case r, ok := <-watch:
				require.True(t, ok, "the write of %s did not arrive\n%s", value, mirror.LogTail(2000))
				require.NoError(t, r.Err())
				for _, e := range r.Events {
					if string(e.Kv.Value) == value {
						return
					}
				}
			case <-mirror.Exited():
				t.Fatalf("make-mirror ended:\n%s", mirror.LogTail(2000))
			}
		}
	}
	var last int64
	for round := range 5 {
		write(round)
		put, err := from.Put(ctx, "/registry/last", fmt.Sprint(round))
		require.NoError(t, err)
		last = put.Header.Revision
		if round == 2 {
			arrived("2") // what is compacted before it was copied ends a mirror
			_, err := from.Compact(ctx, last)
			require.NoError(t, err)
		}
	}
	arrived("4")
	same := func() {
		t.Helper()
		want, err := from.Get(ctx, "", clientv3.WithFromKey())
		require.NoError(t, err)
		got, err := to.Get(ctx, "", clientv3.WithFromKey())
		require.NoError(t, err)
		require.Equal(t, want.Count, got.Count)
		for i, kv := range want.Kvs {
			require.Equal(t, string(kv.Key), string(got.Kvs[i].Key))
			require.Equal(t, kv.Value, got.Kvs[i].Value, "%q", kv.Key)
			require.Zero(t, got.Kvs[i].Lease)
		}
	}
	same()
	mirror.Kill(t)

	target.Stop()
	bump := last + 1000
	out, err := exec.CommandContext(ctx, harness.Sqlbrain(t), "recover", "--datastore", datastore, "--bump-revision",
		fmt.Sprint(bump), "--yes", "--output", "json").CombinedOutput()
	require.NoError(t, err, string(out))
	require.True(t, json.Valid(out), string(out))
	target.Start()
	same()
	got, err := to.Get(ctx, "/registry/last")
	require.NoError(t, err)
	require.Greater(t, got.Header.Revision, last, "a client that remembers etcd's revision would wait")
	r := <-to.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(last))
	require.Greater(t, r.CompactRevision, last)
}
