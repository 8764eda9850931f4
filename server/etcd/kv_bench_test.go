package etcd

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/transport"
)

// BenchmarkRangeResponse makes the message of a page of 500 objects of 1 KiB, and its bytes.
func BenchmarkRangeResponse(b *testing.B) {
	res := &mvcc.RangeResult{Revision: 12345, Count: 10_000, More: true}
	for i := range 500 {
		res.Records = append(res.Records, &coder.Record{
			Key: fmt.Appendf(nil, "/registry/pods/default/name-%05d", i), Value: make([]byte, 1024),
			CreateRevision: int64(i) + 1000, ModRevision: int64(i) + 5000, Version: 3,
		})
	}
	header := &pb.ResponseHeader{ClusterId: 1 << 60, MemberId: 1 << 61, RaftTerm: 3, Revision: res.Revision}
	b.Run("message", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			rangeResponse(header, res)
		}
	})
	for name, c := range map[string]encoding.CodecV2{"bytes": transport.NewCodec(),
		"bytes by protobuf": encoding.GetCodecV2(protocodec.Name)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				out, err := c.Marshal(rangeResponse(header, res))
				if err != nil {
					b.Fatal(err)
				}
				out.Free()
			}
		})
	}
}
