package transport

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// random makes fields of messages.
type random struct{ *rand.Rand }

func (r random) number() int64 {
	if r.IntN(4) == 0 {
		return 0
	}
	return int64(r.Uint64() >> r.IntN(64)) // negative ones too
}

func (r random) header() *pb.ResponseHeader {
	if r.IntN(4) == 0 {
		return nil
	}
	return &pb.ResponseHeader{ClusterId: uint64(r.number()), MemberId: uint64(r.number()), RaftTerm: uint64(r.number()),
		Revision: r.number()}
}

// requireProtobufs returns the bytes that c writes of m, which must be protobuf's.
func requireProtobufs(t *testing.T, c encoding.CodecV2, m proto.Message, seed uint64) mem.BufferSlice {
	t.Helper()
	got, err := c.Marshal(m)
	require.NoError(t, err)
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	require.NoError(t, err)
	if !bytes.Equal(got.Materialize(), want) {
		t.Fatalf("seed %d: %T is written as\n%x, want\n%x", seed, m, got.Materialize(), want)
	}
	return got
}

// TestRangeResponsesHaveProtobufsBytes: what is written by hand is what protobuf
// writes, and can be read back by it.
func TestRangeResponsesHaveProtobufsBytes(t *testing.T) {
	c := NewCodec()
	for seed := range uint64(300) {
		r := random{rand.New(rand.NewPCG(seed, 1))}
		text := func() []byte {
			return bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(3)*r.IntN(1<<r.IntN(12)))
		}
		answer := &pb.RangeResponse{Count: r.number(), More: r.IntN(2) == 0}
		answer.Header = r.header()
		for range r.IntN(60) {
			answer.Kvs = append(answer.Kvs, &mvccpb.KeyValue{
				Key: text(), Value: text(), CreateRevision: r.number(), ModRevision: r.number(), Version: r.number(),
				Lease: r.number(),
			})
		}
		for _, m := range []proto.Message{answer, &pb.RangeStreamResponse{RangeResponse: answer}, answer.Header} {
			requireProtobufs(t, c, m, seed).Free()
		}
	}
}

// TestWatchResponsesHaveProtobufsBytes: however they are cut.
func TestWatchResponsesHaveProtobufsBytes(t *testing.T) {
	c := NewCodec()
	for seed := range uint64(300) {
		r := random{rand.New(rand.NewPCG(seed, 2))}
		text := func() []byte {
			n := r.IntN(3) * r.IntN(1<<r.IntN(12))
			if r.IntN(4) == 0 {
				n = sharedEvents - 1 + r.IntN(2)
			}
			return bytes.Repeat([]byte{byte(r.Uint32())}, n)
		}
		kv := func() *mvccpb.KeyValue {
			if r.IntN(4) == 0 {
				return nil
			}
			return &mvccpb.KeyValue{Key: text(), Value: text(), CreateRevision: r.number(), ModRevision: r.number(),
				Version: r.number(), Lease: r.number()}
		}
		answer := &pb.WatchResponse{
			WatchId: r.number(), Created: r.IntN(2) == 0, Canceled: r.IntN(2) == 0, CompactRevision: r.number(),
			CancelReason: string(bytes.Repeat([]byte("x"), r.IntN(300))), Fragment: r.IntN(2) == 0,
		}
		answer.Header = r.header()
		for range r.IntN(8) {
			answer.Events = append(answer.Events, &mvccpb.Event{Type: mvccpb.Event_EventType(r.IntN(2)), Kv: kv(), PrevKv: kv()})
		}
		got := requireProtobufs(t, c, answer, seed)
		shared := 0
		for _, e := range answer.Events {
			for _, kv := range []*mvccpb.KeyValue{e.Kv, e.PrevKv} {
				if v := kv.GetValue(); len(v) >= sharedEvents &&
					!slices.ContainsFunc(got, func(b mem.Buffer) bool {
						return len(b.ReadOnlyData()) > 0 &&
							&b.ReadOnlyData()[0] == &v[0]
					}) {
					t.Fatalf("seed %d: a value of %d bytes was copied", seed, len(v))
				}
				if len(kv.GetValue()) >= sharedEvents {
					shared++
				}
			}
		}
		if len(got) > 2*shared+1 {
			t.Fatalf("seed %d: %d chunks with %d values", seed, len(got), shared)
		}
	}
}

func TestBuffersAreReusedBySize(t *testing.T) {
	p := &bufferPool{}
	for _, size := range []int{0, 1, 2, 3, 1023, 1024, 1025, 1 << maxPooledBits, 1<<maxPooledBits + 1} {
		for range 3 {
			b := p.Get(size)
			if len(*b) != size {
				t.Fatalf("a buffer of %d bytes has %d", size, len(*b))
			}
			if size > 1<<maxPooledBits && cap(*b) != size {
				t.Fatalf("a buffer of %d bytes, which is not kept, has room for %d", size, cap(*b))
			}
			p.Put(b)
		}
	}
	odd := make([]byte, 0, 1000)
	p.Put(&odd) // not one of its own
	if b := p.Get(900); cap(*b) != 1024 {
		t.Fatalf("a buffer for 900 bytes has room for %d", cap(*b))
	}
}
