package etcd

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/forward"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Txn executes one of two branches, as its compares say.
func (s *kvServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := validateTxn(r, s.maxOps); err != nil {
		return nil, err
	}
	if err := validateOverlap(r); err != nil {
		return nil, err
	}
	res, err := s.txn(ctx, r)
	if err != nil {
		return nil, err
	}
	s.counts.countTxn(res)
	return txnResponse(s.headers.at(res.Revision), res), nil
}

func (s *kvServer) txn(ctx context.Context, r *pb.TxnRequest) (*mvcc.TxnResult, error) {
	serializable := isSerializable(r)
	if forward.OnlyReads(r) {
		permit, read := s.guard.ReadTxn(r)
		res, err := s.writer.Txn(ctx, permit, txnRequest(r), !serializable)
		return res, read.Done(err)
	}
	permit, caller, err := s.guard.WriteTxn(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := validateSize(&pb.InternalRaftRequest{Txn: r}, caller, s.maxBytes); err != nil {
		return nil, err
	}
	return s.writer.Txn(ctx, permit, txnRequest(r), !serializable)
}

// isSerializable reports whether this member may answer all operations of r from its own
// state: they are all serializable ranges.
func isSerializable(r *pb.TxnRequest) bool {
	return !slices.ContainsFunc(slices.Concat(r.Success, r.Failure), func(op *pb.RequestOp) bool {
		return !op.GetRequestRange().GetSerializable()
	})
}
