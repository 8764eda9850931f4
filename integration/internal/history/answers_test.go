package history

import (
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

func remove(key, end string) *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end), PrevKv: true}
}

func ranged(change func(*pb.RangeRequest)) *pb.RangeRequest {
	r := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")}
	if change != nil {
		change(r)
	}
	return r
}

func modIs(key string, rev int64) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: rev}}
}

// exchange is requests and their answers, all of them right. The state ends at revision 6: a of 2 and 5, b of 3, c of
// 3, d of 6; c was deleted in 4.
func exchange() *scene {
	s := &scene{r: NewRecorder(), state: NewVerifier(nil, 1)}
	s.do(Applied, func(value string) proto.Message { return put("a", value) })
	s.do(Applied, func(value string) proto.Message {
		return &pb.TxnRequest{Compare: []*pb.Compare{modIs("a", 2)},
			Success: []*pb.RequestOp{RequestOp(put("c", value)), RequestOp(put("b", value)), RequestOp(ranged(nil))}}
	})
	s.do(Applied, deleteAll("c", "d"))
	s.do(Applied, func(value string) proto.Message {
		return &pb.TxnRequest{Compare: []*pb.Compare{modIs("a", 1)},
			Failure: []*pb.RequestOp{RequestOp(&pb.TxnRequest{Success: []*pb.RequestOp{RequestOp(put("a", value))}})}}
	})
	s.do(Applied, func(value string) proto.Message { return put("d", value) })
	s.do(NotApplied, deleteAll("x", "z"))
	s.read(ranged(func(r *pb.RangeRequest) { r.Limit = 2 }))
	s.read(ranged(func(r *pb.RangeRequest) { r.Revision = 3 }))
	s.read(ranged(func(r *pb.RangeRequest) { r.CountOnly = true }))
	return s
}

func TestVerifierAcceptsRightAnswers(t *testing.T) {
	s := exchange()
	require.Empty(t, NewVerifier(s.r, 1).Round(s.account))
}

func TestVerifierFindsWrongAnswers(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(r *Recorder)
	}{
		{"no previous version", "rather than", func(r *Recorder) { r.ops[2].Answer.(*pb.DeleteRangeResponse).PrevKvs[0] = nil }},
		{"a wrong count of deletions", "rather than", func(r *Recorder) { r.ops[2].Answer.(*pb.DeleteRangeResponse).Deleted++ }},
		{"a wrong revision of an operation", "rather than", func(r *Recorder) {
			r.ops[1].Answer.(*pb.TxnResponse).Responses[0].GetResponsePut().Header.Revision--
		}},
		{"the wrong branch", "rather than", func(r *Recorder) { r.ops[3].Answer.(*pb.TxnResponse).Succeeded = true }},
		{"a key more in a transaction", "rather than", func(r *Recorder) {
			a := r.ops[1].Answer.(*pb.TxnResponse).Responses[2].GetResponseRange()
			a.Kvs = append(a.Kvs, a.Kvs[0])
		}},
		{"a lost page", "rather than", func(r *Recorder) { r.reads[0].Answer.(*pb.RangeResponse).More = false }},
		{"a wrong count", "rather than", func(r *Recorder) { r.reads[2].Answer.(*pb.RangeResponse).Count++ }},
		{"an old version that changed", "rather than", func(r *Recorder) { r.reads[1].Answer.(*pb.RangeResponse).Kvs[0].Version++ }},
		{"a read below a compaction", "after a compaction at revision 4", func(r *Recorder) { r.reads[1].compacted = 4 }},
		{"a refusal without a compaction", "compactions reach revision 3", func(r *Recorder) {
			r.reads[1].Err, r.reads[1].compactable = rpctypes.ErrGRPCCompacted, 3
		}},
		{"a revision that is not in the future", "where revision 6 was known", func(r *Recorder) { r.reads[1].Err = rpctypes.ErrGRPCFutureRev }},
		{"a refusal for no reason", "was refused", func(r *Recorder) { r.reads[0].Err = rpctypes.ErrGRPCEmptyKey }},
		{"a key that is written twice", "a request that writes a key twice was accepted", func(r *Recorder) { r.ops[4].Twice = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := exchange()
			c.spoil(s.r)
			require.Contains(t, strings.Join(NewVerifier(s.r, 1).Round(s.account), "\n"), c.want)
		})
	}
}
