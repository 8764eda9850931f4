package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// RangeStream is Range in chunks of about the largest request's size, so that a
// list of any length passes. Header, count and more come on the last chunk only.
func (s *kvServer) RangeStream(r *pb.RangeRequest, stream pb.KV_RangeStreamServer) error {
	if err := checkRangeStream(r); err != nil {
		return err
	}
	permit, read := s.guard.Range(r.Key, r.RangeEnd)
	err := s.backend.RangeStream(stream.Context(), permit, rangeRequest(r), !r.Serializable, s.maxBytes,
		func(res *mvcc.RangeResult, last bool) error {
			chunk := &pb.RangeResponse{Kvs: keyValues(res.Records)}
			if last {
				chunk.Header, chunk.Count, chunk.More = s.headers.at(res.Revision), res.Count, res.More
			}
			return stream.Send(&pb.RangeStreamResponse{RangeResponse: chunk})
		})
	if err = read.Done(err); err == nil {
		s.counts.ranges.Inc()
	}
	return err
}
