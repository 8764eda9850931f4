package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/watch"
)

func TestRequestsAreTranslated(t *testing.T) {
	r := &pb.TxnRequest{
		Compare: []*pb.Compare{
			{Key: []byte("v"), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{Version: 1}},
			{Key: []byte("c"), Target: pb.Compare_CREATE, Result: pb.Compare_LESS, TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 2}},
			{Key: []byte("m"), Target: pb.Compare_MOD, Result: pb.Compare_NOT_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: 3}},
			{Key: []byte("w"), Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte("x")}},
			{Key: []byte("l"), RangeEnd: []byte("m"), Target: pb.Compare_LEASE, TargetUnion: &pb.Compare_Lease{Lease: 4}},
			{Key: []byte("n"), Target: pb.Compare_MOD, TargetUnion: &pb.Compare_Version{Version: 5}},
		},
		Success: []*pb.RequestOp{
			opRange(&pb.RangeRequest{
				Key: []byte("a"), RangeEnd: []byte("b"), Revision: 1, Limit: 2, SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_VALUE,
				KeysOnly: true, CountOnly: true, MinModRevision: 3, MaxModRevision: 4, MinCreateRevision: 5, MaxCreateRevision: 6, Serializable: true,
			}),
			opPut(&pb.PutRequest{Key: []byte("p"), Value: []byte("v"), Lease: 7, PrevKv: true, IgnoreValue: true, IgnoreLease: true}),
		},
		Failure: []*pb.RequestOp{
			opDelete(&pb.DeleteRangeRequest{Key: []byte("d"), RangeEnd: []byte("e"), PrevKv: true}),
			opTxn(&pb.TxnRequest{Success: []*pb.RequestOp{put("q")}}),
		},
	}
	want := &backend.Txn{
		Compares: []backend.Compare{
			{KeyRange: backend.KeyRange{Key: []byte("v")}, Target: backend.CompareVersion, Result: backend.CompareGreater, Int: 1},
			{KeyRange: backend.KeyRange{Key: []byte("c")}, Target: backend.CompareCreate, Result: backend.CompareLess, Int: 2},
			{KeyRange: backend.KeyRange{Key: []byte("m")}, Target: backend.CompareMod, Result: backend.CompareNotEqual, Int: 3},
			{KeyRange: backend.KeyRange{Key: []byte("w")}, Target: backend.CompareValue, Value: []byte("x")},
			{KeyRange: backend.KeyRange{Key: []byte("l"), End: []byte("m")}, Target: backend.CompareLease, Int: 4},
			{KeyRange: backend.KeyRange{Key: []byte("n")}, Target: backend.CompareMod},
		},
		Then: []backend.Op{
			{Range: &backend.RangeRequest{
				KeyRange: backend.KeyRange{Key: []byte("a"), End: []byte("b")}, Revision: 1, Limit: 2, SortOrder: backend.SortDescend, SortBy: backend.SortByValue,
				KeysOnly: true, CountOnly: true, MinModRevision: 3, MaxModRevision: 4, MinCreateRevision: 5, MaxCreateRevision: 6,
			}},
			{Put: &backend.PutRequest{Key: []byte("p"), Value: []byte("v"), Lease: 7, PrevKV: true, IgnoreValue: true, IgnoreLease: true}},
		},
		Else: []backend.Op{
			{Delete: &backend.DeleteRequest{KeyRange: backend.KeyRange{Key: []byte("d"), End: []byte("e")}, PrevKV: true}},
			{Txn: &backend.Txn{Then: []backend.Op{{Put: &backend.PutRequest{Key: []byte("q")}}}}},
		},
	}
	require.Empty(t, cmp.Diff(want, txnRequest(r)))
}

// What etcd does not know of a compare is turned into one that answers as etcd does,
// so that the backend meets none it does not know.
func TestUnknownComparesAreTranslated(t *testing.T) {
	absent, present := coder.Record{}, coder.Record{Version: 1}
	holds := func(c backend.Compare, r coder.Record) bool {
		require.Equal(t, backend.CompareVersion, c.Target)
		switch c.Result {
		case backend.CompareGreater:
			return r.Version > c.Int
		case backend.CompareLess:
			return r.Version < c.Int
		}
		require.Fail(t, "not the compare of an unknown one", "%v", c)
		return false
	}
	for _, tt := range []struct {
		name            string
		compare         *pb.Compare
		present, absent bool
	}{
		{"unknown target is equal", &pb.Compare{Target: 5, Result: pb.Compare_EQUAL}, true, true},
		{"unknown target is not unequal", &pb.Compare{Target: -1, Result: pb.Compare_NOT_EQUAL}, false, false},
		{"unknown target is not greater", &pb.Compare{Target: 5, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{Version: -1}}, false, false},
		{"unknown target is not less", &pb.Compare{Target: 5, Result: pb.Compare_LESS, TargetUnion: &pb.Compare_Version{Version: 9}}, false, false},
		{"unknown result holds", &pb.Compare{Target: pb.Compare_MOD, Result: 4}, true, true},
		{"unknown result of a value needs the key", &pb.Compare{Target: pb.Compare_VALUE, Result: 4}, true, false},
		{"both unknown", &pb.Compare{Target: 5, Result: -1}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.compare.Key, tt.compare.RangeEnd = []byte("a"), []byte("b")
			c := compare(tt.compare)
			require.Equal(t, backend.KeyRange{Key: []byte("a"), End: []byte("b")}, c.KeyRange)
			require.Equal(t, tt.present, holds(c, present), "a key that exists")
			require.Equal(t, tt.absent, holds(c, absent), "none")
		})
	}
}

// The translation names fields one by one: a field that a newer API adds must be
// dealt with, not dropped.
func TestTranslatedMessagesHaveTheFieldsWeKnow(t *testing.T) {
	for m, want := range map[proto.Message]int{
		&pb.RangeRequest{}: 13, &pb.PutRequest{}: 6, &pb.DeleteRangeRequest{}: 3, &pb.TxnRequest{}: 3, &pb.Compare{}: 9,
		&pb.RequestOp{}: 4, &pb.CompactionRequest{}: 2, &pb.WatchCreateRequest{}: 8, &pb.WatchRequest{}: 3,
		&pb.RangeResponse{}: 4, &pb.PutResponse{}: 2, &pb.DeleteRangeResponse{}: 3, &pb.TxnResponse{}: 3, &pb.ResponseOp{}: 4,
		&pb.WatchResponse{}: 8, &pb.ResponseHeader{}: 4, &mvccpb.KeyValue{}: 6, &mvccpb.Event{}: 3,
		&pb.StatusResponse{}: 13, &pb.HashKVResponse{}: 4, &pb.LeaseTimeToLiveResponse{}: 5,
	} {
		var d protoreflect.MessageDescriptor = m.ProtoReflect().Descriptor()
		require.Equal(t, want, d.Fields().Len(), d.FullName())
	}
}

func TestEnumerationsHaveEtcdsValues(t *testing.T) {
	require.EqualValues(t, pb.RangeRequest_ASCEND, backend.SortAscend)
	require.EqualValues(t, pb.RangeRequest_DESCEND, backend.SortDescend)
	require.EqualValues(t, pb.RangeRequest_VALUE, backend.SortByValue)
	require.EqualValues(t, pb.RangeRequest_MOD, backend.SortByMod)
	require.EqualValues(t, pb.RangeRequest_CREATE, backend.SortByCreate)
	require.EqualValues(t, pb.RangeRequest_VERSION, backend.SortByVersion)
	require.EqualValues(t, pb.Compare_LEASE, backend.CompareLease)
	require.EqualValues(t, pb.Compare_VALUE, backend.CompareValue)
	require.EqualValues(t, pb.Compare_MOD, backend.CompareMod)
	require.EqualValues(t, pb.Compare_CREATE, backend.CompareCreate)
	require.EqualValues(t, pb.Compare_NOT_EQUAL, backend.CompareNotEqual)
	require.EqualValues(t, pb.Compare_LESS, backend.CompareLess)
	require.EqualValues(t, pb.Compare_GREATER, backend.CompareGreater)
	require.EqualValues(t, pb.AlarmType_NOSPACE, backend.AlarmNoSpace)
	require.EqualValues(t, pb.AlarmType_CORRUPT, backend.AlarmCorrupt)
}

var (
	record   = &coder.Record{Key: []byte("k"), Value: []byte("v"), CreateRevision: 1, ModRevision: 2, Version: 3, Lease: 4, Sub: 5}
	recordKV = &mvccpb.KeyValue{Key: []byte("k"), Value: []byte("v"), CreateRevision: 1, ModRevision: 2, Version: 3, Lease: 4}
)

func TestResultsAreTranslated(t *testing.T) {
	res := &backend.TxnResult{
		Revision: 9, Succeeded: true,
		Results: []backend.OpResult{
			{Range: &backend.RangeResult{Revision: 7, Records: []*coder.Record{record}, Count: 5, More: true}},
			{Put: &backend.PutResult{Revision: 8, Prev: record}},
			{Put: &backend.PutResult{Revision: 8}},
			{Delete: &backend.DeleteResult{Revision: 9, Deleted: 1, Prev: []*coder.Record{record}}},
			{Txn: &backend.TxnResult{Revision: 9, Results: []backend.OpResult{{Put: &backend.PutResult{Revision: 9}}}}},
		},
	}
	innerPut := func(rev int64, prev *mvccpb.KeyValue) *pb.ResponseOp {
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{Header: &pb.ResponseHeader{Revision: rev}, PrevKv: prev}}}
	}
	want := &pb.TxnResponse{
		Header:    &pb.ResponseHeader{ClusterId: fakeCluster, MemberId: fakeMember, RaftTerm: uint64(fakeTerm), Revision: 9},
		Succeeded: true,
		Responses: []*pb.ResponseOp{
			{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{
				Header: &pb.ResponseHeader{Revision: 7}, Kvs: []*mvccpb.KeyValue{recordKV}, Count: 5, More: true}}},
			innerPut(8, recordKV),
			innerPut(8, nil),
			{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{
				Header: &pb.ResponseHeader{Revision: 9}, Deleted: 1, PrevKvs: []*mvccpb.KeyValue{recordKV}}}},
			{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{
				Header: &pb.ResponseHeader{}, Responses: []*pb.ResponseOp{innerPut(9, nil)}}}},
		},
	}
	got := txnResponse(headers{&fakeNode{}}.at(res.Revision), res)
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
}

func TestWatchMessagesAreTranslated(t *testing.T) {
	require.Equal(t, watch.CreateRequest{
		WatchID: 1, Key: []byte("a"), End: []byte("b"), StartRevision: 2,
		PrevKV: true, ProgressNotify: true, Fragment: true, NoPut: true, NoDelete: true,
	}, watchCreate(&pb.WatchCreateRequest{
		WatchId: 1, Key: []byte("a"), RangeEnd: []byte("b"), StartRevision: 2, PrevKv: true, ProgressNotify: true, Fragment: true,
		Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT, pb.WatchCreateRequest_NODELETE},
	}))
	require.Equal(t, []byte{0}, watchCreate(&pb.WatchCreateRequest{}).Key, "an empty key is the smallest key")

	s := &watchServer{headers: headers{&fakeNode{}}}
	prev := &coder.Record{Key: []byte("k"), Value: []byte("old"), CreateRevision: 1, ModRevision: 1, Version: 1}
	got := s.watchResponse(&watch.Response{
		WatchID: 5, Revision: 6, Canceled: true, Created: true, CancelReason: "why", CompactRevision: 4, Fragment: true,
		Events: []*watch.Event{
			{Type: watch.Put, Record: record},
			{Type: watch.Delete, Record: &coder.Record{Key: []byte("k"), ModRevision: 6, CreateRevision: 8, Version: 9, Lease: 1, Tombstone: true}, PrevRevision: 2},
		},
		Prev: []*coder.Record{nil, prev},
	})
	want := &pb.WatchResponse{
		Header:  &pb.ResponseHeader{ClusterId: fakeCluster, MemberId: fakeMember, RaftTerm: uint64(fakeTerm), Revision: 6},
		WatchId: 5, Canceled: true, Created: true, CancelReason: "why", CompactRevision: 4,
		Events: []*mvccpb.Event{
			{Type: mvccpb.Event_PUT, Kv: recordKV},
			{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: 6},
				PrevKv: &mvccpb.KeyValue{Key: []byte("k"), Value: []byte("old"), CreateRevision: 1, ModRevision: 1, Version: 1}},
		},
	}
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
}
