package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// DeleteRange deletes the keys of a range.
func (s *kvServer) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if err := checkDelete(r); err != nil {
		return nil, err
	}
	permit, caller, err := s.guard.DeleteRange(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := checkSize(&pb.InternalRaftRequest{DeleteRange: r}, caller, s.maxBytes); err != nil {
		return nil, err
	}
	res, err := s.one(ctx, permit, mvcc.Op{Delete: deleteRequest(r)})
	if err != nil {
		return nil, err
	}
	s.counts.deletes.Inc()
	return deleteResponse(s.headers.at(res.Delete.Revision), res.Delete), nil
}
