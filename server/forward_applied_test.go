package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	clusternode "github.com/sqlbrain/sqlbrain/server/cluster/node"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// TestForwardedWriteIsAnsweredOnceApplied: the follower has applied what it answers.
func TestForwardedWriteIsAnsweredOnceApplied(t *testing.T) {
	p := newPair(t)
	p.leader.lease = lease.Status{ID: 5, GrantedTTL: 60, TTL: 30, Revision: 66}
	p.leader.rangeResult = mvcc.RangeResult{Revision: 77}
	var (
		mu      sync.Mutex
		applied []replica.Update
	)
	p.follower.onApply = func(_ context.Context, u replica.Update) error {
		mu.Lock()
		defer mu.Unlock()
		applied = append(applied, u)
		return nil
	}
	kv, l := pb.NewKVClient(p.conn), pb.NewLeaseClient(p.conn)
	ctx := testContext(t)
	write := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}}}}
	p.leader.txnResult.Succeeded = true
	for name, c := range map[string]struct {
		call func() error
		want []replica.Update
	}{
		"put":     {func() error { _, err := kv.Put(ctx, &pb.PutRequest{Key: key}); return err }, []replica.Update{{Revision: 77}}},
		"delete":  {func() error { _, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: key}); return err }, []replica.Update{{Revision: 77}}},
		"revoke":  {func() error { _, err := l.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: 5}); return err }, []replica.Update{{Revision: fakeRevision}}},
		"compact": {func() error { _, err := kv.Compact(ctx, &pb.CompactionRequest{Revision: 8}); return err }, []replica.Update{{Revision: 9, CompactRevision: 8}}},
		"txn":     {func() error { _, err := kv.Txn(ctx, write); return err }, []replica.Update{{Revision: 77}}},
		"range":   {func() error { _, err := kv.Range(ctx, &pb.RangeRequest{Key: key}); return err }, nil},
	} {
		applied = nil
		require.NoError(t, c.call(), name)
		require.Equal(t, c.want, applied, name)
	}
}

// TestForwardedWriteIsAnsweredInTime: a follower that cannot apply a write answers all
// the same. TestWaitForTheWriteIsBounded of package forward has the bounds.
func TestForwardedWriteIsAnsweredInTime(t *testing.T) {
	p := newPair(t, func(c *Config) { c.applyWait = 50 * time.Millisecond })
	p.follower.onApply = func(ctx context.Context, _ replica.Update) error {
		<-ctx.Done()
		return ctx.Err()
	}
	resp, err := pb.NewKVClient(p.conn).Put(testContext(t), &pb.PutRequest{Key: key})
	require.NoError(t, err)
	require.EqualValues(t, 77, resp.Header.Revision)
	require.EqualValues(t, 1, testutil.ToFloat64(p.followerServer.forward.Collectors()[1].(prometheus.Counter)))
}

// startMembers starts a cluster on one store, and returns a client for each member. The
// first leads.
func startMembers(t *testing.T, store sqlstore.Store, n int) (clients []*clientv3.Client) {
	t.Helper()
	for i := range n {
		log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("node", i)
		peerURL := fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t))
		name := fmt.Sprint("n", i)
		own := clusternode.DefaultConfig()
		own.Store, own.Name, own.Version, own.PeerURLs = store, name, "test", []string{peerURL}
		own.Replica.Logger, own.Logger = log, log
		// A busy machine does not change the leader, and ends no request.
		own.AnswerTimeout, own.Replica.RequestTimeout = time.Hour, eventually.Patience
		node, err := clusternode.Join(t.Context(), own)
		require.NoError(t, err)
		cfg := DefaultConfig()
		cfg.Logger, cfg.Name, cfg.StopTimeout = log, name, eventually.Patience
		cfg.ListenClientURLs, cfg.PeerURLs = []string{"http://127.0.0.1:0"}, []string{peerURL}
		cfg.Members, cfg.PeerNode, cfg.PeerCredentials = node.Members(), clusternode.Peer{Node: node}, node.PeerCredentials()
		cfg.Router, cfg.Mover = clusternode.Connection{Node: node}, node
		cfg.RequestTimeout, cfg.applyWait = eventually.Patience, time.Hour
		s, err := New(cfg, node.Replica())
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), eventually.Patience)
			defer cancel()
			require.NoError(t, node.Close(ctx))
		})
		node.Start()
		runServer(t, s)
		if i == 0 {
			eventually.True(t, "the node to lead", node.Replica().Leading)
		}
		clients = append(clients, newClient(t, s))
	}
	return clients
}

// TestFollowerReadsItsForwardedWrites: after a write through one endpoint, that
// endpoint shows the write to every kind of read, and to no watch that starts then.
func TestFollowerReadsItsForwardedWrites(t *testing.T) {
	store := memstore.New()
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	c := startMembers(t, store, 2)[1]
	ctx := testContext(t)
	const writes = 300
	for i := range writes {
		value := fmt.Sprint(i)
		_, err := c.Put(ctx, "k", value)
		require.NoError(t, err)
		got, err := c.Get(ctx, "k", clientv3.WithSerializable())
		require.NoError(t, err)
		require.Len(t, got.Kvs, 1)
		require.Equal(t, value, string(got.Kvs[0].Value), "a serializable read is stale")
		put, err := c.Put(ctx, "k", value+" again")
		require.NoError(t, err)
		_, err = c.Get(ctx, "k", clientv3.WithSerializable(), clientv3.WithRev(put.Header.Revision))
		require.NoError(t, err, "a read at the write's own revision")
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	for i := range writes {
		put, err := c.Put(ctx, "w", fmt.Sprint(i))
		require.NoError(t, err)
		events := c.Watch(watching, "w", clientv3.WithCreatedNotify())
		created := <-events
		require.NoError(t, created.Err())
		require.GreaterOrEqual(t, created.Header.Revision, put.Header.Revision, "the watch started before the write")
	}
	compact, err := c.Put(ctx, "k", "last")
	require.NoError(t, err)
	_, err = c.Compact(ctx, compact.Header.Revision)
	require.NoError(t, err)
	_, err = c.Get(ctx, "k", clientv3.WithSerializable(), clientv3.WithRev(compact.Header.Revision-1))
	require.ErrorContains(t, err, "compacted")
}
