package server

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// etcdBinary names the environment variable with the path of an etcd 3.7 server.
const etcdBinary = "SQLBRAIN_TEST_ETCD"

// TestAnswersEqualThoseOfEtcd sends the same calls to an etcd and to a server of ours,
// both empty, and compares what comes back.
func TestAnswersEqualThoseOfEtcd(t *testing.T) {
	binary := os.Getenv(etcdBinary)
	if binary == "" {
		t.Skip(etcdBinary + " is not set")
	}
	theirs, ours := startEtcd(t, binary), dial(t, startReplica(t))
	ctx := testContext(t)
	for i, c := range etcdCalls() {
		want, wantErr := c(ctx, theirs)
		got, gotErr := c(ctx, ours)
		name := fmt.Sprintf("call %d", i)
		require.Equal(t, status.Code(wantErr).String(), status.Code(gotErr).String(), "%s: etcd %v %v, here %v %v", name,
			want, wantErr, got, gotErr)
		require.Equal(t, status.Convert(wantErr).Message(), status.Convert(gotErr).Message(), name)
		require.Equal(t, len(want), len(got), "%s: etcd %v, here %v", name, want, got)
		for j := range want {
			maskIDs(want[j].ProtoReflect())
			maskIDs(got[j].ProtoReflect())
			require.Empty(t, cmp.Diff(want[j], got[j], protocmp.Transform()), name)
		}
	}
}

// maskIDs replaces ids and terms by 1 where they are set, everywhere in m.
func maskIDs(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Name() == "cluster_id" || f.Name() == "member_id" || f.Name() == "raft_term":
			m.Set(f, protoreflect.ValueOfUint64(1))
		case f.Message() != nil && f.IsList():
			for i := range v.List().Len() {
				maskIDs(v.List().Get(i).Message())
			}
		case f.Message() != nil && !f.IsMap():
			maskIDs(v.Message())
		}
		return true
	})
}

type etcdCall func(context.Context, *grpc.ClientConn) ([]proto.Message, error)

// unary makes a call of one of the generated client's methods.
func unary[C, Req, Resp any](client func(grpc.ClientConnInterface) C,
	method func(C, context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) etcdCall {
	return func(ctx context.Context, conn *grpc.ClientConn) ([]proto.Message, error) {
		resp, err := method(client(conn), ctx, req)
		if err != nil {
			return nil, err
		}
		return []proto.Message{any(resp).(proto.Message)}, nil
	}
}

func etcdCalls() []etcdCall {
	rng := func(r *pb.RangeRequest) etcdCall { return unary(pb.NewKVClient, pb.KVClient.Range, r) }
	put := func(r *pb.PutRequest) etcdCall { return unary(pb.NewKVClient, pb.KVClient.Put, r) }
	del := func(r *pb.DeleteRangeRequest) etcdCall { return unary(pb.NewKVClient, pb.KVClient.DeleteRange, r) }
	txn := func(r *pb.TxnRequest) etcdCall { return unary(pb.NewKVClient, pb.KVClient.Txn, r) }
	compact := func(r *pb.CompactionRequest) etcdCall { return unary(pb.NewKVClient, pb.KVClient.Compact, r) }
	grant := func(r *pb.LeaseGrantRequest) etcdCall { return unary(pb.NewLeaseClient, pb.LeaseClient.LeaseGrant, r) }
	b := func(s string) []byte { return []byte(s) }
	rangeOp := func(k, end string) *pb.RequestOp { return opRange(&pb.RangeRequest{Key: b(k), RangeEnd: b(end)}) }
	putOp := func(k, v string) *pb.RequestOp {
		return opPut(&pb.PutRequest{Key: b(k), Value: b(v), PrevKv: true})
	}
	many := make([]*pb.RequestOp, 129)
	for i := range many {
		many[i] = putOp(fmt.Sprintf("m%d", i), "")
	}
	calls := []etcdCall{
		rng(&pb.RangeRequest{}), rng(&pb.RangeRequest{Key: key}), rng(&pb.RangeRequest{Key: key, SortOrder: 7}),
		rng(&pb.RangeRequest{Key: key, Revision: 5}),
		compact(&pb.CompactionRequest{}), compact(&pb.CompactionRequest{}), compact(&pb.CompactionRequest{Revision: 77}),
		put(&pb.PutRequest{}), put(&pb.PutRequest{Key: key, Lease: 5}), put(&pb.PutRequest{Key: key, IgnoreValue: true}),
		put(&pb.PutRequest{Key: key, IgnoreLease: true, Lease: 1}),
		grant(&pb.LeaseGrantRequest{ID: 5, TTL: 9_000_000_001}), grant(&pb.LeaseGrantRequest{ID: 5, TTL: -1}),
		grant(&pb.LeaseGrantRequest{ID: 5, TTL: 3}),
		grant(&pb.LeaseGrantRequest{ID: -6, TTL: 1000}),
		unary(pb.NewLeaseClient, pb.LeaseClient.LeaseRevoke, &pb.LeaseRevokeRequest{ID: 4}),
		unary(pb.NewLeaseClient, pb.LeaseClient.LeaseTimeToLive, &pb.LeaseTimeToLiveRequest{ID: 4}),
		unary(pb.NewLeaseClient, pb.LeaseClient.LeaseRevoke, &pb.LeaseRevokeRequest{ID: 5}),
		unary(pb.NewLeaseClient, pb.LeaseClient.LeaseLeases, &pb.LeaseLeasesRequest{}),
		put(&pb.PutRequest{Key: key, Value: b("1"), Lease: -6}),
		put(&pb.PutRequest{Key: key, Value: b("2"), IgnoreLease: true, PrevKv: true}),
		put(&pb.PutRequest{Key: key, IgnoreValue: true}),
		rng(&pb.RangeRequest{Key: key}), rng(&pb.RangeRequest{Key: key, Revision: 2}),
		rng(&pb.RangeRequest{Key: key, Revision: -3}),
		put(&pb.PutRequest{Key: b("a"), Value: b("z")}), put(&pb.PutRequest{Key: b("b"), Value: b("y")}),
		put(&pb.PutRequest{Key: b("a\x00"), Value: b("x")}), put(&pb.PutRequest{Key: b("b"), Value: b("w")}),
		rng(&pb.RangeRequest{Key: b("b"), RangeEnd: b("a")}),
		rng(&pb.RangeRequest{Key: b("a"), RangeEnd: b("\x00"), Limit: 2}),
		rng(&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), KeysOnly: true}),
		rng(&pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), CountOnly: true}),
		rng(&pb.RangeRequest{Key: b("a"), RangeEnd: b("z"), MinModRevision: 6, Limit: 1}),
		rng(&pb.RangeRequest{Key: b("a"), RangeEnd: b("z"), MaxCreateRevision: 5}),
		txn(&pb.TxnRequest{}), txn(&pb.TxnRequest{Success: many}), txn(&pb.TxnRequest{Success: []*pb.RequestOp{{}}}),
		txn(&pb.TxnRequest{Compare: []*pb.Compare{{}}}),
		txn(&pb.TxnRequest{Success: []*pb.RequestOp{putOp("q", ""), putOp("q", "")}}),
		txn(&pb.TxnRequest{
			Compare: []*pb.Compare{{Key: b("a"), RangeEnd: b("c"), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER,
				TargetUnion: &pb.Compare_Version{Version: 0}}},
			Success: []*pb.RequestOp{rangeOp("a", "z"), putOp("a", "n"), rangeOp("a", ""),
				opDelete(&pb.DeleteRangeRequest{Key: b("b"), PrevKv: true}),
				opTxn(&pb.TxnRequest{Compare: []*pb.Compare{{Key: b("a"), Target: pb.Compare_VALUE,
					TargetUnion: &pb.Compare_Value{Value: b("z")}}}, Success: []*pb.RequestOp{rangeOp("b", ""), putOp("c", "1")}})},
		}),
		txn(&pb.TxnRequest{Compare: []*pb.Compare{{Key: b("none"), Target: pb.Compare_VALUE}},
			Failure: []*pb.RequestOp{rangeOp("c", ""), opDelete(&pb.DeleteRangeRequest{Key: b("none")})}}),
		txn(&pb.TxnRequest{Success: []*pb.RequestOp{opRange(&pb.RangeRequest{Key: key, Revision: 99})}}),
		txn(&pb.TxnRequest{Success: []*pb.RequestOp{putOp("c", "2"), opPut(&pb.PutRequest{Key: b("d"), Lease: 88})}}),
		del(&pb.DeleteRangeRequest{}), del(&pb.DeleteRangeRequest{Key: b("none")}),
		del(&pb.DeleteRangeRequest{Key: b("a"), RangeEnd: b("b"), PrevKv: true}),
		del(&pb.DeleteRangeRequest{Key: b("z"), RangeEnd: b("a")}),
		put(&pb.PutRequest{Key: b("a"), Value: b("again")}), rng(&pb.RangeRequest{Key: b("a")}),
		put(&pb.PutRequest{Key: b("big"), Value: make([]byte, 1536*1024)}),
		put(&pb.PutRequest{Key: b("big"), Value: make([]byte, 1536*1024-33)}),
		unary(pb.NewLeaseClient, pb.LeaseClient.LeaseRevoke, &pb.LeaseRevokeRequest{ID: -6}),
		compact(&pb.CompactionRequest{Revision: 4, Physical: true}), compact(&pb.CompactionRequest{Revision: 4}),
		rng(&pb.RangeRequest{Key: key, Revision: 3}), rng(&pb.RangeRequest{Key: key, Revision: 4}),
		// Asked for revision 0, or one below a compaction, etcd answers with a hash it
		// kept of an earlier compaction: not with that of now.
		unary(pb.NewMaintenanceClient, pb.MaintenanceClient.HashKV, &pb.HashKVRequest{Revision: 7}),
		unary(pb.NewMaintenanceClient, pb.MaintenanceClient.HashKV, &pb.HashKVRequest{Revision: 12}),
		unary(pb.NewMaintenanceClient, pb.MaintenanceClient.HashKV, &pb.HashKVRequest{Revision: 99}),
		unary(pb.NewMaintenanceClient, pb.MaintenanceClient.Defragment, &pb.DefragmentRequest{}),
		unary(pb.NewMaintenanceClient, pb.MaintenanceClient.MoveLeader, &pb.MoveLeaderRequest{TargetID: 7}),
		unary(pb.NewMaintenanceClient, pb.MaintenanceClient.Alarm, &pb.AlarmRequest{}),
		unary(pb.NewMaintenanceClient, pb.MaintenanceClient.Alarm,
			&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 9, Alarm: pb.AlarmType_NOSPACE}),
		unary(pb.NewMaintenanceClient, pb.MaintenanceClient.Alarm,
			&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 9, Alarm: pb.AlarmType_NOSPACE}),
		unary(pb.NewMaintenanceClient, pb.MaintenanceClient.Alarm, &pb.AlarmRequest{Alarm: pb.AlarmType_NOSPACE}),
		unary(pb.NewMaintenanceClient, pb.MaintenanceClient.Alarm, &pb.AlarmRequest{Alarm: pb.AlarmType_CORRUPT}),
		put(&pb.PutRequest{Key: b("full")}), grant(&pb.LeaseGrantRequest{ID: 70, TTL: 60}),
		txn(&pb.TxnRequest{Success: []*pb.RequestOp{putOp("full", "")}}),
		txn(&pb.TxnRequest{Success: []*pb.RequestOp{rangeOp("a", "")}}), del(&pb.DeleteRangeRequest{Key: b("big")}),
		rng(&pb.RangeRequest{Key: b("a")}), unary(pb.NewMaintenanceClient, pb.MaintenanceClient.Alarm,
			&pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: 9, Alarm: pb.AlarmType_NOSPACE}),
		unary(pb.NewMaintenanceClient, pb.MaintenanceClient.Alarm,
			&pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: 9, Alarm: pb.AlarmType_NOSPACE}),
		put(&pb.PutRequest{Key: b("full")}),
		unary(pb.NewAuthClient, pb.AuthClient.AuthStatus, &pb.AuthStatusRequest{}),
		unary(pb.NewAuthClient, pb.AuthClient.Authenticate, &pb.AuthenticateRequest{Name: "u", Password: "p"}),
	}
	for target := range pb.RangeRequest_SortTarget_name {
		for order := range pb.RangeRequest_SortOrder_name {
			r := &pb.RangeRequest{Key: b("\x00"), RangeEnd: b("\x00"), SortTarget: pb.RangeRequest_SortTarget(target),
				SortOrder: pb.RangeRequest_SortOrder(order), KeysOnly: true}
			// Versions are not all different, and etcd's sort is not stable.
			if r.SortTarget != pb.RangeRequest_VERSION {
				calls = append(calls, rng(r))
			}
			// etcd sorts a target without an order inside each chunk, see checkRangeStream.
			if r.SortTarget == pb.RangeRequest_KEY || r.SortOrder != pb.RangeRequest_NONE {
				calls = append(calls, rangeStream(&pb.RangeRequest{Key: b("a"), RangeEnd: b("z"), SortTarget: r.SortTarget,
					SortOrder: r.SortOrder, Limit: 2}))
			}
		}
	}
	return append(calls,
		rangeStream(&pb.RangeRequest{}), rangeStream(&pb.RangeRequest{Key: key, MinModRevision: 1}),
		rangeStream(&pb.RangeRequest{Key: key, CountOnly: true}),
		rangeStream(&pb.RangeRequest{Key: key, Revision: 999}), rangeStream(&pb.RangeRequest{Key: key, Revision: 2}),
		watchCalls(0, &pb.WatchCreateRequest{Key: key, StartRevision: -1}),
		watchCalls(1, &pb.WatchCreateRequest{Key: key, StartRevision: 2}),
		watchCalls(0, &pb.WatchCreateRequest{Key: b("b"), RangeEnd: b("a")}),
		watchCalls(1, &pb.WatchCreateRequest{Key: key, WatchId: 5, StartRevision: 4}),
		watchCalls(1, &pb.WatchCreateRequest{Key: b("b"), StartRevision: 8, PrevKv: true}),
		watchCalls(1, &pb.WatchCreateRequest{RangeEnd: b("bb"), StartRevision: 5,
			Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}}),
	)
}

// rangeStream gathers a stream into one answer: how it is cut is not compared.
func rangeStream(r *pb.RangeRequest) etcdCall {
	return func(ctx context.Context, conn *grpc.ClientConn) ([]proto.Message, error) {
		st, err := pb.NewKVClient(conn).RangeStream(ctx, r)
		if err != nil {
			return nil, err
		}
		all := &pb.RangeResponse{}
		for {
			chunk, err := st.Recv()
			if err == io.EOF {
				return []proto.Message{all}, nil
			}
			if err != nil {
				return nil, err
			}
			proto.Merge(all, chunk.RangeResponse)
		}
	}
}

// watchCalls creates a watch and takes its answer and more responses.
func watchCalls(more int, r *pb.WatchCreateRequest) etcdCall {
	return func(ctx context.Context, conn *grpc.ClientConn) (got []proto.Message, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		st, err := pb.NewWatchClient(conn).Watch(ctx)
		if err != nil {
			return nil, err
		}
		if err := st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
			return nil, err
		}
		for range more + 1 {
			resp, err := st.Recv()
			if err != nil {
				return got, err
			}
			got = append(got, resp)
		}
		return got, nil
	}
}

// startEtcd runs an empty etcd and returns a connection to it.
func startEtcd(t *testing.T, binary string) *grpc.ClientConn {
	var urls []string
	for range 2 {
		urls = append(urls, fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t)))
	}
	cmd := exec.Command(binary, "--data-dir", t.TempDir(), "--log-level", "error", "--unsafe-no-fsync",
		"--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
		"--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1], "--initial-cluster", "default="+urls[1])
	cmd.Stderr = testLog{t}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed, as it says
	})
	conn, err := grpc.NewClient(strings.TrimPrefix(urls[0], "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Patience)
	defer cancel()
	_, err = pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: key}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return conn
}
