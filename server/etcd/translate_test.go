package etcd

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/watch"
)

func TestRequestsAreTranslated(t *testing.T) {
	r := &pb.TxnRequest{
		Compare: []*pb.Compare{
			{Key: []byte("v"), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER,
				TargetUnion: &pb.Compare_Version{Version: 1}},
			{Key: []byte("c"), Target: pb.Compare_CREATE, Result: pb.Compare_LESS,
				TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 2}},
			{Key: []byte("m"), Target: pb.Compare_MOD, Result: pb.Compare_NOT_EQUAL,
				TargetUnion: &pb.Compare_ModRevision{ModRevision: 3}},
			{Key: []byte("w"), Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte("x")}},
			{Key: []byte("l"), RangeEnd: []byte("m"), Target: pb.Compare_LEASE, TargetUnion: &pb.Compare_Lease{Lease: 4}},
			{Key: []byte("n"), Target: pb.Compare_MOD, TargetUnion: &pb.Compare_Version{Version: 5}},
		},
		Success: []*pb.RequestOp{
			opRange(&pb.RangeRequest{
				Key: []byte("a"), RangeEnd: []byte("b"), Revision: 1, Limit: 2, SortOrder: pb.RangeRequest_DESCEND,
				SortTarget: pb.RangeRequest_VALUE,
				KeysOnly:   true, CountOnly: true, MinModRevision: 3, MaxModRevision: 4, MinCreateRevision: 5, MaxCreateRevision: 6,
				Serializable: true,
			}),
			opPut(&pb.PutRequest{Key: []byte("p"), Value: []byte("v"), Lease: 7, PrevKv: true, IgnoreValue: true,
				IgnoreLease: true}),
		},
		Failure: []*pb.RequestOp{
			opDelete(&pb.DeleteRangeRequest{Key: []byte("d"), RangeEnd: []byte("e"), PrevKv: true}),
			opTxn(&pb.TxnRequest{Success: []*pb.RequestOp{put("q")}}),
		},
	}
	want := &mvcc.Txn{
		Compares: []mvcc.Compare{
			{KeyRange: mvcc.KeyRange{Key: []byte("v")}, Target: mvcc.CompareVersion, Result: mvcc.CompareGreater, Int: 1},
			{KeyRange: mvcc.KeyRange{Key: []byte("c")}, Target: mvcc.CompareCreate, Result: mvcc.CompareLess, Int: 2},
			{KeyRange: mvcc.KeyRange{Key: []byte("m")}, Target: mvcc.CompareMod, Result: mvcc.CompareNotEqual, Int: 3},
			{KeyRange: mvcc.KeyRange{Key: []byte("w")}, Target: mvcc.CompareValue, Value: []byte("x")},
			{KeyRange: mvcc.KeyRange{Key: []byte("l"), End: []byte("m")}, Target: mvcc.CompareLease, Int: 4},
			{KeyRange: mvcc.KeyRange{Key: []byte("n")}, Target: mvcc.CompareMod},
		},
		Then: []mvcc.Op{
			{Range: &mvcc.RangeRequest{
				KeyRange: mvcc.KeyRange{Key: []byte("a"), End: []byte("b")}, Revision: 1, Limit: 2, SortOrder: mvcc.SortDescend,
				SortBy:   mvcc.SortByValue,
				KeysOnly: true, CountOnly: true, MinModRevision: 3, MaxModRevision: 4, MinCreateRevision: 5, MaxCreateRevision: 6,
			}},
			{Put: &mvcc.PutRequest{Key: []byte("p"), Value: []byte("v"), Lease: 7, PrevKV: true, IgnoreValue: true,
				IgnoreLease: true}},
		},
		Else: []mvcc.Op{
			{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: []byte("d"), End: []byte("e")}, PrevKV: true}},
			{Txn: &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte("q")}}}}},
		},
	}
	require.Empty(t, cmp.Diff(want, txnRequest(r)))
}

// A key that is cut divides the keys of the table as it did.
func TestShortenedKeysNameTheSameKeys(t *testing.T) {
	repeat := func(b byte, n int, then string) []byte { return append(bytes.Repeat([]byte{b}, n), then...) }
	const longest = 3059
	var stored, named [][]byte
	for _, b := range []byte{'a', 0xff} {
		stored = append(stored, []byte{b}, repeat(b, longest-1, ""), repeat(b, longest-1, "\x26"), repeat(b, longest, ""))
		for _, n := range []int{1, longest, coder.MaxInternalKey, coder.MaxInternalKey + 1} {
			named = append(named, repeat(b, n, ""), repeat(b, n, "\x00"), repeat(b, n, "b"))
		}
	}
	for _, key := range stored {
		require.NoError(t, coder.CheckKey(key))
	}
	for _, key := range named {
		for _, end := range append(named, nil, []byte{0}) {
			kr := keysOf(key, end)
			require.LessOrEqual(t, max(len(kr.Key), len(kr.End)), coder.MaxInternalKey)
			for _, s := range stored {
				require.Equal(t, coder.Contains(key, end, s), coder.Contains(kr.Key, kr.End, s))
			}
		}
	}
}

// What etcd does not know of a compare is turned into one that answers as etcd does,
// so that the replica meets none it does not know.
func TestUnknownComparesAreTranslated(t *testing.T) {
	absent, present := coder.Record{}, coder.Record{Version: 1}
	holds := func(c mvcc.Compare, r coder.Record) bool {
		require.Equal(t, mvcc.CompareVersion, c.Target)
		switch c.Result {
		case mvcc.CompareGreater:
			return r.Version > c.Int
		case mvcc.CompareLess:
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
		{"unknown target is not greater", &pb.Compare{Target: 5, Result: pb.Compare_GREATER,
			TargetUnion: &pb.Compare_Version{Version: -1}}, false, false},
		{"unknown target is not less", &pb.Compare{Target: 5, Result: pb.Compare_LESS,
			TargetUnion: &pb.Compare_Version{Version: 9}}, false, false},
		{"unknown result holds", &pb.Compare{Target: pb.Compare_MOD, Result: 4}, true, true},
		{"unknown result of a value needs the key", &pb.Compare{Target: pb.Compare_VALUE, Result: 4}, true, false},
		{"both unknown", &pb.Compare{Target: 5, Result: -1}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.compare.Key, tt.compare.RangeEnd = []byte("a"), []byte("b")
			c := compare(tt.compare)
			require.Equal(t, mvcc.KeyRange{Key: []byte("a"), End: []byte("b")}, c.KeyRange)
			require.Equal(t, tt.present, holds(c, present), "a key that exists")
			require.Equal(t, tt.absent, holds(c, absent), "none")
		})
	}
}

// The translation names fields one by one: a field that a newer API adds must be
// dealt with, not dropped.
func TestMessagesHaveNoUntranslatedFields(t *testing.T) {
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
	require.EqualValues(t, pb.RangeRequest_ASCEND, mvcc.SortAscend)
	require.EqualValues(t, pb.RangeRequest_DESCEND, mvcc.SortDescend)
	require.EqualValues(t, pb.RangeRequest_VALUE, mvcc.SortByValue)
	require.EqualValues(t, pb.RangeRequest_MOD, mvcc.SortByMod)
	require.EqualValues(t, pb.RangeRequest_CREATE, mvcc.SortByCreate)
	require.EqualValues(t, pb.RangeRequest_VERSION, mvcc.SortByVersion)
	require.EqualValues(t, pb.Compare_LEASE, mvcc.CompareLease)
	require.EqualValues(t, pb.Compare_VALUE, mvcc.CompareValue)
	require.EqualValues(t, pb.Compare_MOD, mvcc.CompareMod)
	require.EqualValues(t, pb.Compare_CREATE, mvcc.CompareCreate)
	require.EqualValues(t, pb.Compare_NOT_EQUAL, mvcc.CompareNotEqual)
	require.EqualValues(t, pb.Compare_LESS, mvcc.CompareLess)
	require.EqualValues(t, pb.Compare_GREATER, mvcc.CompareGreater)
	require.EqualValues(t, pb.AlarmType_NOSPACE, quota.AlarmNoSpace)
	require.EqualValues(t, pb.AlarmType_CORRUPT, quota.AlarmCorrupt)
}

var (
	record = &coder.Record{Key: []byte("k"), Value: []byte("v"), CreateRevision: 1, ModRevision: 2, Version: 3,
		Lease: 4, Sub: 5}
	recordKV = &mvccpb.KeyValue{Key: []byte("k"), Value: []byte("v"), CreateRevision: 1, ModRevision: 2, Version: 3,
		Lease: 4}
)

func TestResultsAreTranslated(t *testing.T) {
	res := &mvcc.TxnResult{
		Revision: 9, Succeeded: true,
		Results: []mvcc.OpResult{
			{Range: &mvcc.RangeResult{Revision: 7, Records: []*coder.Record{record}, Count: 5, More: true}},
			{Put: &mvcc.PutResult{Revision: 8, Prev: record}},
			{Put: &mvcc.PutResult{Revision: 8}},
			{Delete: &mvcc.DeleteResult{Revision: 9, Deleted: 1, Prev: []*coder.Record{record}}},
			{Txn: &mvcc.TxnResult{Revision: 9, Results: []mvcc.OpResult{{Put: &mvcc.PutResult{Revision: 9}}}}},
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
	got := txnResponse(headers{fakeIdentity{}}.at(res.Revision), res)
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
}

func TestWatchMessagesAreTranslated(t *testing.T) {
	require.Equal(t, watch.CreateRequest{
		WatchID: 1, Key: []byte("a"), End: []byte("b"), StartRevision: 2,
		PrevKV: true, ProgressNotify: true, Fragment: true, NoPut: true, NoDelete: true,
	}, watchCreate(&pb.WatchCreateRequest{
		WatchId: 1, Key: []byte("a"), RangeEnd: []byte("b"), StartRevision: 2, PrevKv: true, ProgressNotify: true,
		Fragment: true,
		Filters:  []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT, pb.WatchCreateRequest_NODELETE},
	}))
	require.Equal(t, []byte{0}, watchCreate(&pb.WatchCreateRequest{}).Key, "an empty key is the smallest key")

	s := &watchServer{headers: headers{fakeIdentity{}}}
	prev := &coder.Record{Key: []byte("k"), Value: []byte("old"), CreateRevision: 1, ModRevision: 1, Version: 1}
	got := s.watchResponse(&watch.Response{
		WatchID: 5, Revision: 6, Canceled: true, Created: true, CancelReason: "why", CompactRevision: 4, Fragment: true,
		Events: []*watch.Event{
			{Type: watch.Put, Record: record},
			{Type: watch.Delete, Record: &coder.Record{Key: []byte("k"), ModRevision: 6, CreateRevision: 8, Version: 9, Lease: 1,
				Tombstone: true}, PrevRevision: 2},
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
