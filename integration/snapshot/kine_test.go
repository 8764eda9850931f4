package snapshot

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// buildKine builds kine as released, in its module.
func buildKine(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("kine's SQLite needs a C compiler, and gcc is not there")
	}
	path := filepath.Join(t.TempDir(), "kine")
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/k3s-io/kine")
	build.Dir = filepath.Join("..", "programs", "kine")
	build.Env = append(build.Environ(), "CGO_ENABLED=1")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// TestFromKine: kine makes no snapshots; its keys come over as they are at one revision.
func TestFromKine(t *testing.T) {
	harness.NeedsDatabase(t)
	program := buildKine(t)
	ctx, cancel := context.WithTimeout(t.Context(), programWait)
	defer cancel()
	address := fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))
	kine := harness.StartProcess(t, program, "--endpoint", "sqlite://"+filepath.Join(t.TempDir(), "kine.db"), "--listen-address", address, "--metrics-bind-address", "0")
	from := harness.ClientOf(t, "http://"+address)
	create := func(key, value string, opts ...clientv3.OpOption) error {
		r, err := from.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, value, opts...)).Else(clientv3.OpGet(key)).Commit()
		if err == nil && !r.Succeeded {
			err = fmt.Errorf("%s is there", key)
		}
		return err
	}
	kine.Await(t, func(context.Context) error { return create("/registry/pods/0", "v") })
	const pods = 1200 // more than two pages
	for i := 1; i < pods; i++ {
		require.NoError(t, create(fmt.Sprintf("/registry/pods/%d", i), fmt.Sprint(i)))
	}
	lease, err := from.Grant(ctx, 500)
	require.NoError(t, err)
	require.NoError(t, create("/registry/events/e", "v", clientv3.WithLease(lease.ID)))
	change := func(key string, then clientv3.Op) {
		t.Helper()
		got, err := from.Get(ctx, key)
		require.NoError(t, err)
		r, err := from.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", got.Kvs[0].ModRevision)).Then(then).Else(clientv3.OpGet(key)).Commit()
		require.NoError(t, err)
		require.True(t, r.Succeeded)
	}
	change("/registry/pods/7", clientv3.OpPut("/registry/pods/7", "changed"))
	change("/registry/pods/8", clientv3.OpDelete("/registry/pods/8"))
	was, err := from.Get(ctx, "/", clientv3.WithPrefix())
	require.NoError(t, err)

	datastore := harness.SQLite.Datastore(t)
	out := harness.Run(t, programWait, "", harness.Sqlbrain(t), "restore", "--from", "http://"+address, "--prefix", "/registry/pods/", "--datastore", datastore)
	require.NotZero(t, out.Code)
	require.Contains(t, out.Stderr, `"/registry/events/e" does not`)
	succeed(t, harness.Sqlbrain(t), "restore", "--from", "http://"+address, "--datastore", datastore)

	n, _ := member(t, false, datastore)
	n.StartWithoutWaiting()
	c := awaitClient(t, n, clientv3.Config{})
	got, err := c.Get(ctx, "", clientv3.WithFromKey())
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(got.Kvs), pods)
	// kine reports no versions.
	told := func(kvs []*mvccpb.KeyValue) (lines []string) {
		for _, kv := range kvs {
			lines = append(lines, fmt.Sprintf("%s=%s of %d, created at %d, lease %x", kv.Key, kv.Value, kv.ModRevision, kv.CreateRevision, kv.Lease))
		}
		return lines
	}
	require.Equal(t, told(was.Kvs), told(got.Kvs))
	for _, kv := range got.Kvs {
		require.Equal(t, kv.CreateRevision == kv.ModRevision, kv.Version == 1, "%s", kv.Key)
	}
	ttl, err := c.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	require.NoError(t, err)
	require.EqualValues(t, 500, ttl.GrantedTTL)
	require.Len(t, ttl.Keys, 1)
	_, err = c.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(got.Header.Revision-1))
	require.ErrorContains(t, err, "compacted")
	put, err := c.Put(ctx, "/registry/pods/7", "again")
	require.NoError(t, err)
	require.Equal(t, got.Header.Revision+1, put.Header.Revision)
}
