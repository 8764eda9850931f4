package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
)

// The checks that need nothing but the request, in etcd's order.

func validateRange(r *pb.RangeRequest) error {
	if len(r.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	if _, ok := pb.RangeRequest_SortOrder_name[int32(r.SortOrder)]; !ok {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	if _, ok := pb.RangeRequest_SortTarget_name[int32(r.SortTarget)]; !ok {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

// validateRangeStream refuses what etcd refuses; clients fall back on Range then. As in
// etcd, another target than the key passes if it comes without an order. It sorts all
// the same: etcd sorts inside each chunk and loses keys, the replica sorts the whole
// range within a bound.
func validateRangeStream(r *pb.RangeRequest) error {
	if err := validateRange(r); err != nil {
		return err
	}
	if r.SortOrder != pb.RangeRequest_NONE &&
		(r.SortTarget != pb.RangeRequest_KEY || r.SortOrder != pb.RangeRequest_ASCEND) {
		return status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	}
	if r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0 {
		return status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	}
	return nil
}

func validatePut(r *pb.PutRequest) error {
	if len(r.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	if r.IgnoreValue && len(r.Value) != 0 {
		return rpctypes.ErrGRPCValueProvided
	}
	if r.IgnoreLease && r.Lease != 0 {
		return rpctypes.ErrGRPCLeaseProvided
	}
	return coder.CheckKey(r.Key)
}

func validateDelete(r *pb.DeleteRangeRequest) error {
	if len(r.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

// leastTxnSteps is what validateTxn allows however small maxOps is.
const leastTxnSteps = 1024

// validateTxn checks r and what is nested in it. maxOps bounds the compares and
// each branch; a nested transaction may have what its parent leaves of it. That bounds
// the depth, but the operations of all branches together only by the size of the
// message. So each compare and operation also counts once for every transaction that
// it is in, which is how often validateOverlap and the check of permissions look at it,
// and r may have 4·maxOps² of these, which no transaction of two levels exceeds. etcd has no such bound.
func validateTxn(r *pb.TxnRequest, maxOps int) error {
	steps := max(4*int64(maxOps)*int64(maxOps), leastTxnSteps)
	return validateNestedTxn(r, maxOps, 1, &steps)
}

func validateNestedTxn(r *pb.TxnRequest, maxOps int, depth int64, steps *int64) error {
	n := max(len(r.GetCompare()), len(r.GetSuccess()), len(r.GetFailure()))
	if n > maxOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	*steps -= depth * int64(len(r.GetCompare())+len(r.GetSuccess())+len(r.GetFailure()))
	if *steps < 0 {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.GetCompare() {
		if err := validateCompare(c); err != nil {
			return err
		}
	}
	for _, branch := range [][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range branch {
			if err := validateOp(op, maxOps-n, depth, steps); err != nil {
				return err
			}
		}
	}
	return nil
}

func validateCompare(c *pb.Compare) error {
	if len(c.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

func validateOp(op *pb.RequestOp, maxOps int, depth int64, steps *int64) error {
	switch r := op.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		return validateRange(r.RequestRange)
	case *pb.RequestOp_RequestPut:
		return validatePut(r.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return validateDelete(r.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return validateNestedTxn(r.RequestTxn, maxOps, depth+1, steps)
	default:
		return rpctypes.ErrGRPCKeyNotFound
	}
}

// validateSize refuses a request that writes and that etcd could not propose: etcd
// measures it with the wrapping, and so does this. wrapped holds the request.
func validateSize(wrapped *pb.InternalRaftRequest, caller guard.Caller, maxBytes int) error {
	// The largest header there is: the id depends on the member's.
	wrapped.Header = &pb.RequestHeader{ID: 1 << 63, Username: caller.Name, AuthRevision: caller.Revision}
	if proto.Size(wrapped) > maxBytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	return nil
}
