package transport

import (
	"math/bits"
	"reflect"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// codec is gRPC's codec of protobuf messages, but writes the answers to ranges and
// watches by hand: they are the largest by far, and most of what a list from memory
// or an event for many watchers costs is making their bytes.
type codec struct{ encoding.CodecV2 }

// NewCodec returns the codec of servers for clients.
func NewCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(protocodec.Name)} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	var to *account
	if o, ok := v.(*outgoing); ok {
		v, to = o.message, o.account
	}
	switch m := v.(type) {
	case *pb.RangeResponse:
		if known(m) {
			return marshalRange(m, false, to)
		}
	case *pb.RangeStreamResponse:
		if r := m.GetRangeResponse(); r != nil && known(r) && !hasUnknown(m) {
			return marshalRange(r, true, to)
		}
	case *pb.WatchResponse:
		return marshalWatch(m, to)
	}
	data, err := c.CodecV2.Marshal(v)
	if err != nil || to == nil || mem.IsBelowBufferPoolingThreshold(data.Len()) {
		return data, err
	}
	w := newMessage(data.Len(), 0, to)
	for _, b := range data {
		w.copy(b.ReadOnlyData())
	}
	data.Free()
	return w.done(), nil
}

// marshalRange writes r, as the only field of a message if inStream.
func marshalRange(r *pb.RangeResponse, inStream bool, to *account) (mem.BufferSlice, error) {
	header, err := proto.Marshal(r.Header)
	if err != nil {
		return nil, err
	}
	body := sizeRangeResponse(r, header)
	size := body
	if inStream {
		size = protowire.SizeTag(1) + protowire.SizeBytes(body)
	}
	own := size
	for _, kv := range r.Kvs {
		if len(kv.Value) >= sharedValues {
			own -= len(kv.Value)
		}
	}
	w := newMessage(own, sharedValues, to)
	b := w.room(2*maxFieldHead + len(header))
	if inStream {
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.BytesType), uint64(body))
	}
	if r.Header != nil {
		b = protowire.AppendBytes(append(b, 1<<3|byte(protowire.BytesType)), header)
	}
	w.buf = b
	for _, kv := range r.Kvs {
		w.keyValue(2, kv)
	}
	w.buf = appendInt64(appendBool(w.room(2*maxFieldHead), 3, r.More), 4, r.Count)
	return w.done(), nil
}

// known reports whether r has nothing but the fields that are written below. A
// follower passes answers on that it has read, and its leader may be newer. The
// header is written by protobuf.
func known(r *pb.RangeResponse) bool {
	for _, kv := range r.Kvs {
		if kv == nil || keyHasUnknown(kv) {
			return false
		}
	}
	return !hasUnknown(r)
}

// unknownOfKey is the place of the field in which protobuf keeps what it does not
// know of a key.
var unknownOfKey, unknownOfKeyFound = reflect.TypeFor[mvccpb.KeyValue]().FieldByName("unknownFields")

// keyHasUnknown is hasUnknown without making the message ready for reflection, which
// costs a page of a list a fifth more.
func keyHasUnknown(kv *mvccpb.KeyValue) bool {
	if !unknownOfKeyFound {
		return hasUnknown(kv)
	}
	return reflect.ValueOf(kv).Elem().Field(unknownOfKey.Index[0]).Len() > 0
}

func hasUnknown(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

func sizeRangeResponse(r *pb.RangeResponse, header []byte) (n int) {
	if r.Header != nil {
		n += 1 + protowire.SizeBytes(len(header))
	}
	for _, kv := range r.Kvs {
		n += 1 + protowire.SizeBytes(sizeKeyValue(kv))
	}
	if r.More {
		n += 2
	}
	return n + sizeInt64(r.Count)
}

func appendKeyBeforeValue(b []byte, kv *mvccpb.KeyValue) []byte {
	b = appendBytes(b, 1, kv.Key)
	b = appendInt64(b, 2, kv.CreateRevision)
	b = appendInt64(b, 3, kv.ModRevision)
	return appendInt64(b, 4, kv.Version)
}

func sizeKeyValue(kv *mvccpb.KeyValue) int {
	return sizeBytes(kv.Key) + sizeInt64(kv.CreateRevision) + sizeInt64(kv.ModRevision) + sizeInt64(kv.Version) +
		sizeBytes(kv.Value) + sizeInt64(kv.Lease)
}

// Fields that are zero are left out, as proto3 wants. All numbers are below 16: a
// tag is one byte.

func sizeBytes(v []byte) int {
	if len(v) == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(len(v))
}

func sizeInt64(v int64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(v))
}

func appendBytes(b []byte, field byte, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(append(b, field<<3|byte(protowire.BytesType)), v)
}

func appendInt64(b []byte, field byte, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, field<<3|byte(protowire.VarintType)), uint64(v))
}

func appendBool(b []byte, field byte, v bool) []byte {
	if !v {
		return b
	}
	return append(b, field<<3|byte(protowire.VarintType), 1)
}

// rangeBuffers is a pool of buffers that are written from end to end, so that,
// unlike gRPC's own, it need not clear them.
var rangeBuffers = &bufferPool{}

// bufferPool keeps buffers of powers of two bytes.
type bufferPool struct {
	classes [maxPooledBits + 1]sync.Pool // of *[]byte, by the binary logarithm of their capacity
}

// maxPooledBits: larger buffers, of 16 MiB and more, are rare and not kept.
const maxPooledBits = 24

// Get implements mem.BufferPool.
func (p *bufferPool) Get(size int) *[]byte {
	class := bits.Len(uint(max(size, 1) - 1))
	if class <= maxPooledBits {
		if b, ok := p.classes[class].Get().(*[]byte); ok {
			*b = (*b)[:size]
			return b
		}
	}
	capacity := size // of a buffer that is not kept, and may be very large
	if class <= maxPooledBits {
		capacity = 1 << class
	}
	b := make([]byte, size, capacity)
	return &b
}

// Put implements mem.BufferPool.
func (p *bufferPool) Put(b *[]byte) {
	if n := cap(*b); n == 1<<(bits.Len(uint(n))-1) && bits.Len(uint(n))-1 <= maxPooledBits {
		p.classes[bits.Len(uint(n))-1].Put(b)
	}
}
