package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

func put(key, value string) *pb.PutRequest {
	return &pb.PutRequest{Key: []byte(key), Value: []byte(value), PrevKv: true}
}

func txn(ops ...*pb.PutRequest) *pb.TxnRequest {
	t := &pb.TxnRequest{}
	for _, op := range ops {
		t.Success = append(t.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: op}})
	}
	return t
}

// TestRequestsAreExecuted has what etcd 3.7 answers. The state ends at revision 6: a of 2 and 5, b of 3, c of 3, d of
// 6; c was deleted in 4.
func TestRequestsAreExecuted(t *testing.T) {
	s := New(1)
	for _, request := range []proto.Message{
		put("a", "1"), txn(put("c", "2"), put("b", "2")), &pb.DeleteRangeRequest{Key: []byte("c"), RangeEnd: []byte("d")},
		put("a", "4"), put("d", "5"),
	} {
		x := s.Execute(request, s.Revision())
		require.NoError(t, x.Err)
		s.Apply(Revision{s.Revision() + 1, x.Events})
	}
	keys := func(change func(r *pb.RangeRequest)) string {
		r := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")}
		change(r)
		a := s.Execute(r, 6).Answer.(*pb.RangeResponse)
		var all []string
		for _, kv := range a.Kvs {
			all = append(all, string(kv.Key))
		}
		return fmt.Sprintf("%s %d %v", strings.Join(all, ""), a.Count, a.More)
	}
	require.Equal(t, "abd 3 false", keys(func(*pb.RangeRequest) {}))
	require.Equal(t, "abc 3 false", keys(func(r *pb.RangeRequest) { r.Revision = 3 }))
	require.Equal(t, "ab 3 true", keys(func(r *pb.RangeRequest) { r.Limit = 2 }))
	require.Equal(t, "da 3 true", keys(func(r *pb.RangeRequest) {
		r.Limit, r.SortTarget, r.SortOrder = 2, pb.RangeRequest_MOD, pb.RangeRequest_DESCEND
	}))
	require.Equal(t, "a 3 true", keys(func(r *pb.RangeRequest) { r.Limit, r.MaxCreateRevision = 1, 3 }))
	require.Equal(t, " 3 false", keys(func(r *pb.RangeRequest) { r.Limit, r.CountOnly = 1, true }))

	require.ErrorIs(t, s.Execute(txn(put("a", ""), put("a", "")), 6).Err, rpctypes.ErrGRPCDuplicateKey)
	kept := s.Execute(&pb.PutRequest{Key: []byte("b"), IgnoreValue: true}, 6)
	require.NoError(t, kept.Err)
	require.Equal(t, "2", kept.Events[0].Value)
	require.EqualValues(t, 2, kept.Events[0].Version)
	require.ErrorIs(t, s.Execute(&pb.PutRequest{Key: []byte("c"), IgnoreValue: true}, 6).Err, rpctypes.ErrGRPCKeyNotFound)
	require.ErrorIs(t, s.Execute(&pb.RangeRequest{Key: []byte("c"), Revision: 7}, 6).Err, rpctypes.ErrGRPCFutureRev)

	// Without any key, only the compare of a value fails.
	x := []byte("x")
	require.True(t, s.holds(&pb.Compare{Key: x, Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{}}, 6))
	require.False(t, s.holds(&pb.Compare{Key: x, Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{}}, 6))
}
