package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Range returns the key-value pairs of a range.
func (s *kvServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := validateRange(r); err != nil {
		return nil, err
	}
	permit, read := s.guard.Range(r.Key, r.RangeEnd)
	res, err := s.reader.Range(ctx, permit, rangeRequest(r), !r.Serializable)
	if err = read.Done(err); err != nil {
		return nil, err
	}
	s.counts.ranges.Inc()
	return rangeResponse(s.headers.at(res.Revision), res), nil
}
