package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// DeleteRange deletes the keys of a range.
func (s *kvServer) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if err := validateDelete(r); err != nil {
		return nil, err
	}
	permit, caller, err := s.guard.DeleteRange(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := validateSize(&pb.InternalRaftRequest{DeleteRange: r}, caller, s.maxBytes); err != nil {
		return nil, err
	}
	res, err := s.writer.Txn(ctx, permit, &mvcc.Txn{Then: []mvcc.Op{{Delete: deleteRequest(r)}}}, true)
	if err != nil {
		return nil, err
	}
	s.counts.deletes.Inc()
	deleted := res.Results[0].Delete
	return deleteResponse(s.headers.at(deleted.Revision), deleted), nil
}
