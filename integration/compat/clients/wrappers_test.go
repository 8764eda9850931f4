package clients

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/ordering"
	"golang.org/x/sync/errgroup"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// TestOrdering: no answer is older than one before it, serializable reads and
// restarts included.
func TestOrdering(t *testing.T) {
	n, ctx := start(t), bounded(t)
	older := errors.New("an answer is older than one before it")
	kv := ordering.NewKV(clientv3.NewKV(n.Client()), func(op clientv3.Op, r clientv3.OpResponse, before int64) error {
		return fmt.Errorf("%w: %+v after revision %d", older, r, before)
	})
	for round := range 3 {
		var group errgroup.Group
		for w := range 4 {
			group.Go(func() error {
				for i := range 20 {
					key := fmt.Sprintf("k%d", (w+i)%5)
					_, err := kv.Put(ctx, key, "v")
					if err == nil {
						_, err = kv.Get(ctx, key, clientv3.WithSerializable())
					}
					if err == nil {
						_, err = kv.Txn(ctx).Then(clientv3.OpGet(key, clientv3.WithSerializable())).Commit()
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		if round == 0 {
			n.Kill()
		} else {
			n.Stop()
		}
		n.Start()
	}
}

// TestNamespace: two namespaces over one store do not see each other, and every
// kind of call and answer is translated.
func TestNamespace(t *testing.T) {
	n, ctx := start(t), bounded(t)
	c := n.Client()
	in, other := namespace.NewKV(c, "in/"), namespace.NewKV(c, "other/")
	watching, stop := context.WithCancel(ctx)
	defer stop()
	events := namespace.NewWatcher(c, "in/").Watch(watching, "", clientv3.WithPrefix(), clientv3.WithPrevKV(),
		clientv3.WithRev(1))

	_, err := other.Put(ctx, "a", "other's")
	require.NoError(t, err)
	lease, err := c.Grant(ctx, 60)
	require.NoError(t, err)
	_, err = in.Put(ctx, "a", "1", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	r, err := in.Txn(ctx).If(clientv3.Compare(clientv3.Value("a"), "=", "1"),
		clientv3.Compare(clientv3.CreateRevision("b"), "=", 0)).
		Then(clientv3.OpPut("b", "2"), clientv3.OpGet("a"), clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("c", "3")},
			nil)).Commit()
	require.NoError(t, err)
	require.True(t, r.Succeeded)
	require.Equal(t, "a", string(r.Responses[1].GetResponseRange().Kvs[0].Key))
	require.Equal(t, map[string]string{"a": "1", "b": "2", "c": "3"}, contents(t, in, ""))
	require.Equal(t, map[string]string{"a": "other's"}, contents(t, other, ""))

	from, err := in.Get(ctx, "b", clientv3.WithFromKey())
	require.NoError(t, err)
	require.EqualValues(t, 2, from.Count, "from a key on, within the namespace")
	ttl, err := namespace.NewLease(c, "in/").TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("a")}, ttl.Keys)
	deleted, err := in.Delete(ctx, "", clientv3.WithFromKey(), clientv3.WithPrevKV())
	require.NoError(t, err)
	require.Len(t, deleted.PrevKvs, 3)
	require.Equal(t, map[string]string{"a": "other's"}, contents(t, other, ""))

	var got []string
	for len(got) < 6 {
		answer, open := <-events
		require.True(t, open)
		require.NoError(t, answer.Err())
		for _, e := range answer.Events {
			previous := ""
			if e.PrevKv != nil {
				previous = string(e.PrevKv.Key)
			}
			got = append(got, fmt.Sprintf("%s %s %s", e.Type, e.Kv.Key, previous))
		}
	}
	require.Equal(t, []string{"PUT a ", "PUT b ", "PUT c ", "DELETE a a", "DELETE b b", "DELETE c c"}, got)
	stop()
	for range events { // until it is closed
	}
}

// TestMirror: the base, in its pages, and the updates after it make the same
// store elsewhere.
func TestMirror(t *testing.T) {
	const keys = 2500 // the base comes in pages of 1000
	n, ctx := start(t), bounded(t)
	c := n.Client()
	harness.Fill(t, c, "data/", keys, "value")
	syncing, stop := context.WithCancel(ctx)
	defer stop()
	s := mirror.NewSyncer(n.Client(), "data/", 0)
	copied := map[string]string{}
	base, failed := s.SyncBase(syncing)
	// The base is at one revision, whatever happens while it is read.
	_, err := c.Put(ctx, "data/0000000", "changed")
	require.NoError(t, err)
	pages := 0
	for r := range base {
		pages++
		for _, kv := range r.Kvs {
			copied[string(kv.Key)] = string(kv.Value)
		}
	}
	require.NoError(t, <-failed)
	require.Len(t, copied, keys)
	require.Equal(t, 3, pages)

	_, err = c.Txn(ctx).Then(clientv3.OpPut("data/0000001", "changed"), clientv3.OpDelete("data/0000002"),
		clientv3.OpPut("data/new", "new")).Commit()
	require.NoError(t, err)
	_, err = c.Delete(ctx, "data/00001", clientv3.WithPrefix())
	require.NoError(t, err)
	last, err := c.Put(ctx, "data/last", "last")
	require.NoError(t, err)

	updates := s.SyncUpdates(syncing)
	for at := int64(0); at < last.Header.Revision; {
		r, open := <-updates
		require.True(t, open)
		require.NoError(t, r.Err())
		for _, e := range r.Events {
			at = e.Kv.ModRevision
			if e.Type == mvccpb.Event_DELETE {
				delete(copied, string(e.Kv.Key))
			} else {
				copied[string(e.Kv.Key)] = string(e.Kv.Value)
			}
		}
	}
	require.Equal(t, contents(t, c, "data/"), copied)
	stop()
	for range updates { // until it is closed
	}
}
