package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Put writes one key.
func (s *kvServer) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := validatePut(r); err != nil {
		return nil, err
	}
	permit, caller, err := s.guard.Put(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := validateSize(&pb.InternalRaftRequest{Put: r}, caller, s.maxBytes); err != nil {
		return nil, err
	}
	res, err := s.writer.Txn(ctx, permit, &mvcc.Txn{Then: []mvcc.Op{{Put: putRequest(r)}}}, true)
	if err != nil {
		return nil, err
	}
	s.counts.puts.Inc()
	put := res.Results[0].Put
	return putResponse(s.headers.at(put.Revision), put), nil
}
