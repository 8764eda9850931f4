package clients

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/leasing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

const leasePrefix = "leasing/"

// newLeasing returns a KV that caches the keys it owns.
func newLeasing(t *testing.T, n *harness.Node) clientv3.KV {
	t.Helper()
	kv, end, err := leasing.NewKV(n.Client(), leasePrefix)
	require.NoError(t, err)
	t.Cleanup(end)
	return kv
}

// TestLeasingIsCoherent: what one cache has acknowledged the others read.
func TestLeasingIsCoherent(t *testing.T) {
	n, ctx := start(t), bounded(t)
	one, two := newLeasing(t, n), newLeasing(t, n)
	get := func(kv clientv3.KV, key string) string {
		t.Helper()
		r, err := kv.Get(ctx, key)
		require.NoError(t, err)
		if len(r.Kvs) == 0 {
			return ""
		}
		return string(r.Kvs[0].Value)
	}
	_, err := one.Put(ctx, "k", "1")
	require.NoError(t, err)
	require.Equal(t, "1", get(one, "k"))
	require.NotEmpty(t, contents(t, n.Client(), leasePrefix), "the key is owned")
	require.Equal(t, "1", get(two, "k"))

	for i := range 5 {
		value := strconv.Itoa(i)
		writer, reader := one, two
		if i%2 == 1 {
			writer, reader = two, one
		}
		_, err := writer.Put(ctx, "k", value)
		require.NoError(t, err)
		require.Equal(t, value, get(reader, "k"))
		require.Equal(t, value, get(writer, "k"))
	}
	// The wrapper writes a single key that it does not own twice, so neither the
	// count of a deletion nor a version is what it would be without.
	_, err = two.Delete(ctx, "k")
	require.NoError(t, err)
	require.Empty(t, get(one, "k"))

	_, err = one.Put(ctx, "range/a", "a")
	require.NoError(t, err)
	_, err = two.Put(ctx, "range/b", "b")
	require.NoError(t, err)
	require.Equal(t, "ab", get(one, "range/a")+get(two, "range/b"))
	r, err := one.Delete(ctx, "range/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.EqualValues(t, 2, r.Deleted)
	require.Empty(t, get(two, "range/a")+get(two, "range/b"))
}

// TestLeasingTransactions: compares against owned keys, in either branch.
func TestLeasingTransactions(t *testing.T) {
	n, ctx := start(t), bounded(t)
	one, two := newLeasing(t, n), newLeasing(t, n)
	_, err := one.Put(ctx, "k", "1")
	require.NoError(t, err)
	for range 2 { // not owned, then owned
		_, err = one.Get(ctx, "k")
		require.NoError(t, err)
	}
	r, err := one.Txn(ctx).If(clientv3.Compare(clientv3.Value("k"), "=", "1")).
		Then(clientv3.OpGet("k")).Else(clientv3.OpPut("k", "wrong")).Commit()
	require.NoError(t, err)
	require.True(t, r.Succeeded)
	require.Equal(t, "1", string(r.Responses[0].GetResponseRange().Kvs[0].Value))

	r, err = two.Txn(ctx).If(clientv3.Compare(clientv3.Value("k"), "<", "2")).
		Then(clientv3.OpPut("k", "2"), clientv3.OpPut("other", "2")).Commit()
	require.NoError(t, err)
	require.True(t, r.Succeeded)
	got, err := one.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "2", string(got.Kvs[0].Value))

	r, err = one.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("other"), ">", 0)).
		Then(clientv3.OpDelete("k")).Else(clientv3.OpPut("k", "wrong")).Commit()
	require.NoError(t, err)
	require.True(t, r.Succeeded)
	got, err = two.Get(ctx, "k")
	require.NoError(t, err)
	require.Empty(t, got.Kvs)
}
