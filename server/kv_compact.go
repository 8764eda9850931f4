package server

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Compact discards the history below a revision.
func (s *kvServer) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	if err := s.guard.Admin(ctx); err != nil {
		return nil, err
	}
	rev, err := s.backend.Compact(ctx, r.Revision, r.Physical)
	if err != nil {
		return nil, err
	}
	return &pb.CompactionResponse{Header: s.headers.at(rev)}, nil
}
