package server

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/replica"
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
		"put": {func() error { _, err := kv.Put(ctx, &pb.PutRequest{Key: key}); return err },
			[]replica.Update{{Revision: 77}}},
		"delete": {func() error { _, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: key}); return err },
			[]replica.Update{{Revision: 77}}},
		"revoke": {func() error { _, err := l.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: 5}); return err },
			[]replica.Update{{Revision: fakeRevision}}},
		"compact": {func() error { _, err := kv.Compact(ctx, &pb.CompactionRequest{Revision: 8}); return err },
			[]replica.Update{{Revision: 9, CompactRevision: 8}}},
		"txn":   {func() error { _, err := kv.Txn(ctx, write); return err }, []replica.Update{{Revision: 77}}},
		"range": {func() error { _, err := kv.Range(ctx, &pb.RangeRequest{Key: key}); return err }, nil},
	} {
		applied = nil
		require.NoError(t, c.call(), name)
		require.Equal(t, c.want, applied, name)
	}
}

type headed interface{ GetHeader() *pb.ResponseHeader }

// A client can read on the follower at the revision that it gets there.
func TestForwardedReadIsAnsweredWithARevisionOfTheFollower(t *testing.T) {
	for _, here := range []int64{fakeRevision - 1, fakeRevision + 1} {
		p := newPair(t)
		p.follower.revision = here
		l, m := pb.NewLeaseClient(p.conn), pb.NewMaintenanceClient(p.conn)
		ctx := testContext(t)
		renewals, err := l.LeaseKeepAlive(ctx)
		require.NoError(t, err)
		for name, call := range map[string]func() (headed, error){
			"time to live": func() (headed, error) {
				return l.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 5})
			},
			"leases": func() (headed, error) {
				return l.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
			},
			"alarms": func() (headed, error) {
				return m.Alarm(ctx, &pb.AlarmRequest{})
			},
			"renewal": func() (headed, error) {
				require.NoError(t, renewals.Send(&pb.LeaseKeepAliveRequest{ID: 5}))
				return renewals.Recv()
			},
		} {
			resp, err := call()
			require.NoError(t, err, name)
			require.EqualValues(t, min(here, fakeRevision), resp.GetHeader().GetRevision(), name)
		}
	}
}
