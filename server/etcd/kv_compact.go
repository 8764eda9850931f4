package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Compact discards the history below a revision.
func (s *kvServer) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	permit, err := s.guard.Admin(ctx)
	if err != nil {
		return nil, err
	}
	rev, err := s.writer.Compact(ctx, permit, r.Revision, r.Physical)
	if err != nil {
		return nil, err
	}
	return &pb.CompactionResponse{Header: s.headers.at(rev)}, nil
}
