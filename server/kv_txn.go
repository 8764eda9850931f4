package server

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/backend"
)

// Txn executes one of two branches, as its compares say.
func (s *kvServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := checkTxn(r, s.maxOps); err != nil {
		return nil, err
	}
	if err := checkOverlap(r); err != nil {
		return nil, err
	}
	res, err := s.txn(ctx, r)
	if err != nil {
		return nil, err
	}
	s.counts.countTxn(res)
	return txnResponse(s.headers.at(res.Revision), res), nil
}

func (s *kvServer) txn(ctx context.Context, r *pb.TxnRequest) (*backend.TxnResult, error) {
	readOnly, serializable := txnReads(r)
	if readOnly {
		ctx, read := s.guard.ReadTxn(ctx, r)
		res, err := s.backend.Txn(ctx, txnRequest(r), !serializable)
		if changed := read.Done(); changed != nil {
			return nil, changed
		}
		return res, err
	}
	ctx, caller, err := s.guard.WriteTxn(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := checkSize(&pb.InternalRaftRequest{Txn: r}, caller, s.maxBytes); err != nil {
		return nil, err
	}
	return s.backend.Txn(ctx, txnRequest(r), !serializable)
}

// txnReads reports whether r has no other operations than ranges, and whether
// all of these may be answered from this node's own state.
func txnReads(r *pb.TxnRequest) (readOnly, serializable bool) {
	readOnly, serializable = true, true
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range branch {
			rr := op.GetRequestRange()
			readOnly = readOnly && rr != nil
			serializable = serializable && rr.GetSerializable()
		}
	}
	return readOnly, serializable
}
