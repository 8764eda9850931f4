package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// chunkBytes is about the size of the chunks of a RangeStream. etcd's are as large as the largest request. These are as
// large as what gRPC queues of a stream for a client that does not read, so that there is no more of each in memory.
const chunkBytes = 64 << 10

// RangeStream is Range in chunks, so that a list of any length passes. Header, count and more come on the last chunk
// only.
func (s *kvServer) RangeStream(r *pb.RangeRequest, stream pb.KV_RangeStreamServer) error {
	if err := validateRangeStream(r); err != nil {
		return err
	}
	permit, read := s.guard.Range(r.Key, r.RangeEnd)
	err := s.reader.RangeStream(stream.Context(), permit, rangeRequest(r), !r.Serializable, chunkBytes,
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
