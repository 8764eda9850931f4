package history

import (
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// checkResponse verifies all of the answer to a request that writes, or its refusal.
func (v *Verifier) checkResponse(op *Op) {
	switch op.Outcome {
	case Applied:
		v.compareAnswers(op.Request, op.Answer, op.Revision-1, op.window, false)
	case NotApplied:
		v.compareAnswers(op.Request, op.Answer, op.Revision, op.window, false)
	case Refused:
		if !op.Twice || !is(op.Err, rpctypes.ErrGRPCDuplicateKey) {
			v.checkRefusal(op.Request, op.Err, op.MinRevision, op.window, false)
			v.checkKept(op)
		}
	}
	if op.Twice && (op.Outcome == Applied || op.Outcome == NotApplied) {
		v.fail("a request that writes a key twice was accepted: %v", op)
	}
}

// checkKept verifies that a request that keeps a value or a lease was refused because there was none.
func (v *Verifier) checkKept(op *Op) {
	if op.MaxRevision == 0 || !is(op.Err, rpctypes.ErrGRPCKeyNotFound) {
		return
	}
	for at := max(op.MinRevision, v.model.Base()); at <= min(op.MaxRevision, v.model.Revision()); at++ {
		if v.model.Execute(op.Request, at).Err != nil {
			return
		}
	}
	v.fail("%v was refused, where it would succeed on each of the revisions %d to %d: %v", op.Request, op.MinRevision,
		op.MaxRevision, op.Err)
}

// compareAnswers verifies that an answer is what etcd answers on the state at a revision, and that it shows
// nothing that was compacted before the request was sent; stale answers may.
func (v *Verifier) compareAnswers(request, answer proto.Message, at int64, known window, stale bool) {
	if at < v.model.Base() || at > v.model.Revision() {
		return // reported elsewhere
	}
	x := v.model.Execute(request, at)
	switch {
	case x.Err != nil:
		v.fail("%v\n  was answered %v\n  and etcd refuses it: %v", request, answer, x.Err)
	case !proto.Equal(x.Answer, answer):
		v.fail("%v\n  on revision %d was answered\n  %v\n  rather than\n  %v", request, at, answer, x.Answer)
	case !stale && slices.ContainsFunc(x.Past, func(rev int64) bool { return rev < known.compacted }):
		v.fail("%v was answered, after a compaction at revision %d was acknowledged", request, known.compacted)
	}
}

// checkRefusal verifies that the error of a request is right.
func (v *Verifier) checkRefusal(request proto.Message, err error, newest int64, known window, stale bool) {
	revisions := revisionsOf(request)
	switch {
	case is(err, rpctypes.ErrGRPCCompacted):
		if !slices.ContainsFunc(revisions, func(rev int64) bool { return rev < known.compactable }) {
			v.fail("%v was refused, where compactions reach revision %d: %v", request, known.compactable, err)
		}
	case is(err, rpctypes.ErrGRPCFutureRev):
		if !stale && !slices.ContainsFunc(revisions, func(rev int64) bool { return rev > newest }) {
			v.fail("%v was refused, where revision %d was known: %v", request, newest, err)
		}
	case is(err, rpctypes.ErrGRPCLeaseNotFound):
		// The clients of leases judge that.
	case is(err, rpctypes.ErrGRPCKeyNotFound) && strings.Contains(prototext.Format(request), "ignore_"):
	default:
		v.fail("%v was refused: %v", request, err)
	}
}

func is(err, etcd error) bool {
	s, want := status.Convert(err), status.Convert(etcd)
	return s.Code() == want.Code() && s.Message() == want.Message()
}

// revisionsOf returns the old revisions that a request reads in any branch.
func revisionsOf(request proto.Message) (revisions []int64) {
	switch r := request.(type) {
	case *pb.RangeRequest:
		if r.Revision > 0 {
			return []int64{r.Revision}
		}
	case *pb.TxnRequest:
		for _, op := range slices.Concat(r.Success, r.Failure) {
			if o := op.GetRequestRange(); o != nil {
				revisions = append(revisions, revisionsOf(o)...)
			}
			if o := op.GetRequestTxn(); o != nil {
				revisions = append(revisions, revisionsOf(o)...)
			}
		}
	}
	return revisions
}
