package snapshot

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// kine is a running kine with keys of all kinds.
type kine struct {
	process *harness.Process
	address string
	lease   clientv3.LeaseID
	was     *clientv3.GetResponse // all keys
}

const pods = 1200 // more than two pages

// startKine starts kine and gives it keys.
func startKine(t *testing.T, endpoint string) *kine {
	t.Helper()
	program := harness.Kine(t)
	ctx, cancel := context.WithTimeout(t.Context(), programWait)
	defer cancel()
	k := &kine{address: fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))}
	k.process = harness.StartProcess(t, program, "--endpoint", endpoint, "--listen-address", k.address,
		"--metrics-bind-address", "0")
	from := harness.ClientOf(t, "http://"+k.address)
	create := func(key, value string, opts ...clientv3.OpOption) error {
		r, err := from.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, value,
			opts...)).Else(clientv3.OpGet(key)).Commit()
		if err == nil && !r.Succeeded {
			err = fmt.Errorf("%s is there", key)
		}
		return err
	}
	k.process.Await(t, func(context.Context) error { return create("/registry/pods/0", "v") })
	for i := 1; i < pods; i++ {
		require.NoError(t, create(fmt.Sprintf("/registry/pods/%d", i), fmt.Sprint(i)))
	}
	lease, err := from.Grant(ctx, 500)
	require.NoError(t, err)
	k.lease = lease.ID
	require.NoError(t, create("/registry/events/e", "v", clientv3.WithLease(lease.ID)))
	change := func(key string, then clientv3.Op) {
		t.Helper()
		got, err := from.Get(ctx, key)
		require.NoError(t, err)
		r, err := from.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", got.Kvs[0].ModRevision)).Then(then).Else(
			clientv3.OpGet(key)).Commit()
		require.NoError(t, err)
		require.True(t, r.Succeeded)
	}
	change("/registry/pods/7", clientv3.OpPut("/registry/pods/7", "changed"))
	change("/registry/pods/8", clientv3.OpDelete("/registry/pods/8"))
	require.NoError(t, create("/registry/pods/8", "created again"))
	change("/registry/pods/9", clientv3.OpDelete("/registry/pods/9"))
	k.was, err = from.Get(ctx, "/", clientv3.WithPrefix())
	require.NoError(t, err)
	return k
}

// compare compares all keys of a server with kine's.
func (k *kine) compare(t *testing.T, c *clientv3.Client) {
	t.Helper()
	got, err := c.Get(t.Context(), "", clientv3.WithFromKey())
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(got.Kvs), pods)
	told := func(kvs []*mvccpb.KeyValue) (lines []string) {
		for _, kv := range kvs {
			lines = append(lines, fmt.Sprintf("%s=%s of %d, created at %d, lease %x", kv.Key, kv.Value, kv.ModRevision,
				kv.CreateRevision, kv.Lease))
		}
		return lines
	}
	require.Equal(t, told(k.was.Kvs), told(got.Kvs))
	for _, kv := range got.Kvs { // kine reports no versions
		require.Equal(t, kv.CreateRevision == kv.ModRevision, kv.Version == 1, "%s", kv.Key)
	}
	ttl, err := c.TimeToLive(t.Context(), k.lease, clientv3.WithAttachedKeys())
	require.NoError(t, err)
	require.EqualValues(t, 500, ttl.GrantedTTL)
	require.Len(t, ttl.Keys, 1)
	_, err = c.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithRev(got.Header.Revision-1))
	require.ErrorContains(t, err, "compacted")
	put, err := c.Put(t.Context(), "/registry/pods/7", "again")
	require.NoError(t, err)
	require.Equal(t, got.Header.Revision+1, put.Header.Revision)
}

// TestFromKine: kine makes no snapshots; its keys come over as they are at one revision.
func TestFromKine(t *testing.T) {
	harness.NeedsDatabase(t)
	k := startKine(t, "sqlite://"+filepath.Join(t.TempDir(), "kine.db"))
	datastore := harness.SQLite.Datastore(t)
	out := harness.Run(t, programWait, "", harness.Sqlbrain(t), "restore", "--from", "http://"+k.address, "--prefix",
		"/registry/pods/", "--datastore", datastore)
	require.NotZero(t, out.Code)
	require.Contains(t, out.Stderr, `"/registry/events/e" does not`)
	harness.Succeed(t, harness.Sqlbrain(t), "restore", "--from", "http://"+k.address, "--datastore", datastore)

	n := harness.NewNode(t, datastore)
	n.StartWithoutWaiting()
	k.compare(t, awaitClient(t, n, clientv3.Config{}))
}

// TestInKinesPlace: sqlbrain goes on where kine ended, on kine's own table, and kine where sqlbrain gives it back.
func TestInKinesPlace(t *testing.T) {
	try := func(t *testing.T, endpoint string) {
		k := startKine(t, endpoint)
		k.process.Kill(t)
		address := fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))
		flags := []string{"kine", "--endpoint", endpoint, "--listen-address", address, "--metrics-bind-address", "0"}
		start := func() (*harness.Process, *clientv3.Client) {
			p, c := harness.StartProcess(t, harness.Sqlbrain(t), flags...), harness.ClientOf(t, "http://"+address)
			p.Await(t, func(ctx context.Context) error {
				_, err := c.Get(ctx, "k")
				return err
			})
			return p, c
		}
		p, c := start()
		got, err := c.Get(t.Context(), "/", clientv3.WithPrefix())
		require.NoError(t, err)
		require.Equal(t, k.was.Header.Revision, got.Header.Revision)
		p.Stop(t)
		harness.Succeed(t, harness.Sqlbrain(t), append(flags[:3:3], "--revert")...)

		again := harness.StartProcess(t, harness.Kine(t), "--endpoint", endpoint, "--listen-address", k.address,
			"--metrics-bind-address", "0")
		from := harness.ClientOf(t, "http://"+k.address)
		again.Await(t, func(ctx context.Context) error {
			got, err := from.Get(ctx, "/registry/pods/7")
			if err == nil && (len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "changed") {
				err = fmt.Errorf("kine has %v", got.Kvs)
			}
			return err
		})
		again.Kill(t)
		p, c = start()
		k.compare(t, c)
		want, err := c.Get(t.Context(), "/", clientv3.WithPrefix())
		require.NoError(t, err)
		p.Stop(t)

		// Also with what was written.
		harness.Succeed(t, harness.Sqlbrain(t), append(flags[:3:3], "--revert", "--keep-writes")...)
		harness.StartProcess(t, harness.Kine(t), "--endpoint", endpoint, "--listen-address", k.address,
			"--metrics-bind-address", "0").Await(t,
			func(ctx context.Context) error {
				got, err = from.Get(ctx, "/", clientv3.WithPrefix())
				return err
			})
		require.Len(t, got.Kvs, len(want.Kvs))
		for i, kv := range want.Kvs {
			is := got.Kvs[i]
			require.Equal(t, fmt.Sprint(kv.Key, kv.Value, kv.ModRevision, kv.CreateRevision),
				fmt.Sprint(is.Key, is.Value, is.ModRevision, is.CreateRevision), "%s", kv.Key)
		}
		_, err = from.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithRev(want.Header.Revision-1))
		require.ErrorContains(t, err, "compacted")
		r, err := from.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision("/registry/last"), "=", 0)).Then(
			clientv3.OpPut("/registry/last", "v")).Commit()
		require.NoError(t, err)
		require.Greater(t, r.Header.Revision, want.Header.Revision)
	}
	harness.ForEachKineEndpoint(t, try)
}
