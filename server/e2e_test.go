package server

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func newClient(t *testing.T, s *Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.ClientURLs(), Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Patience)
	t.Cleanup(cancel)
	return ctx
}

func TestPutGetDelete(t *testing.T) {
	c, ctx := newClient(t, startReplica(t)), testContext(t)

	put, err := c.Put(ctx, "a", "1")
	require.NoError(t, err)
	require.EqualValues(t, 2, put.Header.Revision, "a fresh store is at revision 1")
	require.NotZero(t, put.Header.ClusterId)
	require.NotZero(t, put.Header.MemberId)
	require.NotZero(t, put.Header.RaftTerm)

	put, err = c.Put(ctx, "a", "2", clientv3.WithPrevKV())
	require.NoError(t, err)
	require.Equal(t, "1", string(put.PrevKv.Value))

	got, err := c.Get(ctx, "a")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	require.EqualValues(t, 2, got.Kvs[0].CreateRevision)
	require.EqualValues(t, 3, got.Kvs[0].ModRevision)
	require.EqualValues(t, 2, got.Kvs[0].Version)

	got, err = c.Get(ctx, "a", clientv3.WithRev(2))
	require.NoError(t, err)
	require.Equal(t, "1", string(got.Kvs[0].Value))
	require.EqualValues(t, 3, got.Header.Revision, "the header has the current revision, not the one asked for")

	_, err = c.Get(ctx, "a", clientv3.WithRev(4))
	require.ErrorIs(t, err, rpctypes.ErrFutureRev)

	del, err := c.Delete(ctx, "nothing")
	require.NoError(t, err)
	require.EqualValues(t, 3, del.Header.Revision, "deleting nothing does not raise the revision")
	del, err = c.Delete(ctx, "a", clientv3.WithPrevKV())
	require.NoError(t, err)
	require.EqualValues(t, 1, del.Deleted)
	require.Equal(t, "2", string(del.PrevKvs[0].Value))

	_, err = c.Put(ctx, "absent", "", clientv3.WithIgnoreValue())
	require.ErrorIs(t, err, rpctypes.ErrKeyNotFound)
	_, err = c.Put(ctx, "a", "", clientv3.WithLease(99))
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
}

func TestRangeStreamReturnsTheRowsOfRange(t *testing.T) {
	c, ctx := newClient(t, startReplica(t, func(cfg *Config) { cfg.MaxRequestBytes = 4096 })), testContext(t)
	for i := range 50 {
		_, err := c.Put(ctx, fmt.Sprintf("k%02d", i), string(make([]byte, 500)))
		require.NoError(t, err)
	}
	want, err := c.Get(ctx, "k", clientv3.WithPrefix(), clientv3.WithLimit(45))
	require.NoError(t, err)
	require.True(t, want.More)
	stream, err := c.GetStream(ctx, "k", clientv3.WithPrefix(), clientv3.WithLimit(45))
	require.NoError(t, err)
	got, err := clientv3.GetStreamToGetResponse(stream)
	require.NoError(t, err)
	require.Equal(t, want.Header.Revision, got.Header.Revision)
	require.Equal(t, want.Count, got.Count)
	require.Equal(t, want.More, got.More)
	require.Len(t, got.Kvs, 45)
	for i := range got.Kvs {
		require.Equal(t, want.Kvs[i].Key, got.Kvs[i].Key)
		require.Equal(t, want.Kvs[i].ModRevision, got.Kvs[i].ModRevision)
	}
}

func TestTxnHeadersAndOrder(t *testing.T) {
	c, ctx := newClient(t, startReplica(t)), testContext(t)
	_, err := c.Put(ctx, "a", "0")
	require.NoError(t, err)
	res, err := c.Txn(ctx).
		If(clientv3.Compare(clientv3.Value("missing"), "=", "")).
		Else(
			clientv3.OpGet("a"),
			clientv3.OpPut("a", "1"),
			clientv3.OpGet("a"),
			clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet("a")}, nil),
		).Commit()
	require.NoError(t, err)
	require.False(t, res.Succeeded, "a value compare on a missing key is false")
	require.EqualValues(t, 3, res.Header.Revision)
	before, after := res.Responses[0].GetResponseRange(), res.Responses[2].GetResponseRange()
	require.Equal(t, "0", string(before.Kvs[0].Value))
	require.EqualValues(t, 2, before.Header.Revision)
	require.Zero(t, before.Header.ClusterId)
	require.Equal(t, "1", string(after.Kvs[0].Value), "later operations see earlier writes")
	require.EqualValues(t, 3, after.Header.Revision)
	require.Zero(t, res.Responses[3].GetResponseTxn().Header.Revision)

	_, err = c.Txn(ctx).Then(clientv3.OpPut("a", ""), clientv3.OpDelete("a", clientv3.WithPrefix())).Commit()
	require.ErrorIs(t, err, rpctypes.ErrDuplicateKey)

	// A nested put may come before a delete in a later nested transaction, if one of them is not executed.
	put := clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("a", "2")}, nil)
	del := clientv3.OpDelete("a", clientv3.WithPrefix())
	_, err = c.Txn(ctx).Then(put, clientv3.OpTxn(nil, []clientv3.Op{del}, nil)).Commit()
	require.ErrorIs(t, err, rpctypes.ErrDuplicateKey)
	got, err := c.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, "1", string(got.Kvs[0].Value), "nothing was written")
	_, err = c.Txn(ctx).Then(put, clientv3.OpTxn(nil, nil, []clientv3.Op{del})).Commit()
	require.NoError(t, err)
	got, err = c.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, "2", string(got.Kvs[0].Value))
	require.EqualValues(t, 4, got.Header.Revision)
}

func TestCompact(t *testing.T) {
	c, ctx := newClient(t, startReplica(t)), testContext(t)
	_, err := c.Compact(ctx, 0)
	require.NoError(t, err, "on a fresh store compacting at 0 succeeds once")
	_, err = c.Compact(ctx, 0)
	require.ErrorIs(t, err, rpctypes.ErrCompacted)
	for i := range 3 {
		_, err := c.Put(ctx, "a", fmt.Sprint(i))
		require.NoError(t, err)
	}
	_, err = c.Compact(ctx, 9)
	require.ErrorIs(t, err, rpctypes.ErrFutureRev)
	res, err := c.Compact(ctx, 3, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	require.EqualValues(t, 4, res.Header.Revision)
	_, err = c.Get(ctx, "a", clientv3.WithRev(2))
	require.ErrorIs(t, err, rpctypes.ErrCompacted)
	_, err = c.Get(ctx, "a", clientv3.WithRev(3))
	require.NoError(t, err, "reading at the compact revision itself works")

	w := <-c.Watch(ctx, "a", clientv3.WithRev(2))
	require.True(t, w.Canceled)
	require.EqualValues(t, 3, w.CompactRevision)
}

func TestWatch(t *testing.T) {
	c, ctx := newClient(t, startReplica(t)), testContext(t)
	_, err := c.Put(ctx, "p/a", "1")
	require.NoError(t, err)
	events := c.Watch(clientv3.WithRequireLeader(ctx), "p/", clientv3.WithPrefix(), clientv3.WithPrevKV(),
		clientv3.WithRev(2), clientv3.WithCreatedNotify())
	require.True(t, (<-events).Created)
	first := <-events
	require.Len(t, first.Events, 1)
	require.True(t, first.Events[0].IsCreate())
	require.Nil(t, first.Events[0].PrevKv)

	_, err = c.Txn(ctx).Then(clientv3.OpPut("p/b", "2"), clientv3.OpDelete("p/a"), clientv3.OpPut("q", "3")).Commit()
	require.NoError(t, err)
	second := <-events
	require.Len(t, second.Events, 2, "the events of one revision come together")
	require.EqualValues(t, 3, second.Header.Revision)
	require.Equal(t, clientv3.EventTypeDelete, second.Events[1].Type)
	require.Equal(t, "1", string(second.Events[1].PrevKv.Value))
	require.Empty(t, second.Events[1].Kv.Value)
	require.Zero(t, second.Events[1].Kv.CreateRevision)

	_, err = c.Put(ctx, "q", "4")
	require.NoError(t, err)
	require.NoError(t, c.RequestProgress(clientv3.WithRequireLeader(ctx)))
	progress := <-events
	require.True(t, progress.IsProgressNotify())
	require.EqualValues(t, 4, progress.Header.Revision)
}

func TestLeases(t *testing.T) {
	c, ctx := newClient(t, startReplica(t)), testContext(t)
	_, err := c.Grant(ctx, 9_000_000_001)
	require.ErrorIs(t, err, rpctypes.ErrLeaseTTLTooLarge)
	l, err := c.Grant(ctx, 100)
	require.NoError(t, err)
	require.EqualValues(t, 100, l.TTL)
	_, err = c.Put(ctx, "held", "", clientv3.WithLease(l.ID))
	require.NoError(t, err)
	ttl, err := c.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys())
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("held")}, ttl.Keys)
	require.EqualValues(t, 100, ttl.GrantedTTL)
	all, err := c.Leases(ctx)
	require.NoError(t, err)
	require.Len(t, all.Leases, 1)
	kept, err := c.KeepAliveOnce(ctx, l.ID)
	require.NoError(t, err)
	require.EqualValues(t, 100, kept.TTL)
	_, err = c.KeepAliveOnce(ctx, l.ID+1)
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound, "the client makes this error of TTL 0")
	revoked, err := c.Revoke(ctx, l.ID)
	require.NoError(t, err)
	require.EqualValues(t, 3, revoked.Header.Revision)
	_, err = c.Revoke(ctx, l.ID)
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
	ttl, err = c.TimeToLive(ctx, l.ID)
	require.NoError(t, err)
	require.EqualValues(t, -1, ttl.TTL)
}

func TestClusterAndMaintenance(t *testing.T) {
	s := startReplica(t)
	c, ctx := newClient(t, s), testContext(t)
	members, err := c.MemberList(ctx)
	require.NoError(t, err)
	require.Len(t, members.Members, 1)
	require.Equal(t, s.ClientURLs(), members.Members[0].ClientURLs)
	require.Zero(t, members.Header.Revision)
	_, err = c.MemberAdd(ctx, []string{"http://127.0.0.1:1"})
	require.ErrorContains(t, err, "member changes are not supported")

	st, err := c.Status(ctx, s.ClientURLs()[0])
	require.NoError(t, err)
	require.Equal(t, "3.7.3", st.Version)
	require.Equal(t, members.Members[0].ID, st.Leader)
	require.Empty(t, st.Errors)
	h, err := c.HashKV(ctx, s.ClientURLs()[0], 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, h.HashRevision)
	require.EqualValues(t, -1, h.CompactRevision)
	_, err = c.Defragment(ctx, s.ClientURLs()[0])
	require.NoError(t, err)
	_, err = c.MoveLeader(ctx, st.Leader)
	require.NoError(t, err)
	_, err = c.MoveLeader(ctx, st.Leader+1)
	require.ErrorIs(t, err, rpctypes.ErrBadLeaderTransferee)
	alarms, err := c.AlarmList(ctx)
	require.NoError(t, err)
	require.Empty(t, alarms.Alarms)
	auth, err := c.AuthStatus(ctx)
	require.NoError(t, err)
	require.False(t, auth.Enabled)
}
