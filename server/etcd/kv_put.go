package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Put writes one key.
func (s *kvServer) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := checkPut(r); err != nil {
		return nil, err
	}
	permit, caller, err := s.guard.Put(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := checkSize(&pb.InternalRaftRequest{Put: r}, caller, s.maxBytes); err != nil {
		return nil, err
	}
	res, err := s.one(ctx, permit, mvcc.Op{Put: putRequest(r)})
	if err != nil {
		return nil, err
	}
	s.counts.puts.Inc()
	return putResponse(s.headers.at(res.Put.Revision), res.Put), nil
}

// one executes a transaction of op alone.
func (s *kvServer) one(ctx context.Context, as auth.Permit, op mvcc.Op) (*mvcc.OpResult, error) {
	res, err := s.writer.Txn(ctx, as, &mvcc.Txn{Then: []mvcc.Op{op}}, true)
	if err != nil {
		return nil, err
	}
	return &res.Results[0], nil
}
