package transport

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// sharedBytes is the least size of a value that is not copied into a watch response: all
// watchers of a key are sent the same slice. Copying a smaller value costs less than
// another piece of the message.
const sharedBytes = 512

// marshalWatch writes r as protobuf does, except that its larger values are pieces of
// the message as they are. The value of a version never changes. This
// process makes every watch response that it sends, so there are no unknown fields.
func marshalWatch(r *pb.WatchResponse) (mem.BufferSlice, error) {
	header, err := proto.Marshal(r.Header)
	if err != nil {
		return nil, err
	}
	own, shared := len(header)+len(r.CancelReason)+watchOverhead, 0
	sizes := make([]int, len(r.Events))
	for i, e := range r.Events {
		sizes[i] = sizeEvent(e)
		own += sizes[i] + 1 + protowire.SizeVarint(uint64(sizes[i]))
		for _, kv := range []*mvccpb.KeyValue{e.Kv, e.PrevKv} {
			if n := len(kv.GetValue()); n >= sharedBytes {
				own -= n
				shared++
			}
		}
	}
	w := pieceWriter{buf: make([]byte, 0, own), pieces: make(mem.BufferSlice, 0, 2*shared+1)}
	if r.Header != nil {
		w.buf = protowire.AppendBytes(append(w.buf, 1<<3|byte(protowire.BytesType)), header)
	}
	w.buf = appendInt64(w.buf, 2, r.WatchId)
	w.buf = appendBool(w.buf, 3, r.Created)
	w.buf = appendBool(w.buf, 4, r.Canceled)
	w.buf = appendInt64(w.buf, 5, r.CompactRevision)
	w.buf = appendBytes(w.buf, 6, []byte(r.CancelReason))
	w.buf = appendBool(w.buf, 7, r.Fragment)
	for i, e := range r.Events {
		w.buf = protowire.AppendVarint(append(w.buf, 11<<3|byte(protowire.BytesType)), uint64(sizes[i]))
		w.buf = appendInt64(w.buf, 1, int64(e.Type))
		w.keyValue(2, e.Kv)
		w.keyValue(3, e.PrevKv)
	}
	w.cut()
	return w.pieces, nil
}

// watchOverhead is most of what the fields of a response take apart from keys and
// values: tags, lengths and numbers.
const watchOverhead = 64

// pieceWriter makes a message of pieces: what is written to buf, and values between.
type pieceWriter struct {
	buf    []byte // it is made large enough: pieces of it must stay where they are
	start  int    // of the bytes that are not in a piece yet
	pieces mem.BufferSlice
}

func (w *pieceWriter) cut() {
	if len(w.buf) > w.start {
		w.pieces = append(w.pieces, mem.SliceBuffer(w.buf[w.start:]))
		w.start = len(w.buf)
	}
}

func (w *pieceWriter) keyValue(field byte, kv *mvccpb.KeyValue) {
	if kv == nil {
		return
	}
	w.buf = protowire.AppendVarint(append(w.buf, field<<3|byte(protowire.BytesType)), uint64(sizeKeyValue(kv)))
	if len(kv.Value) < sharedBytes {
		w.buf = appendKeyValue(w.buf, kv)
		return
	}
	w.buf = appendKeyBeforeValue(w.buf, kv)
	w.buf = protowire.AppendVarint(append(w.buf, 5<<3|byte(protowire.BytesType)), uint64(len(kv.Value)))
	w.cut()
	w.pieces = append(w.pieces, mem.SliceBuffer(kv.Value))
	w.buf = appendInt64(w.buf, 6, kv.Lease)
}

func sizeEvent(e *mvccpb.Event) int {
	n := sizeInt64(int64(e.Type))
	for _, kv := range []*mvccpb.KeyValue{e.Kv, e.PrevKv} {
		if kv != nil {
			n += 1 + protowire.SizeBytes(sizeKeyValue(kv))
		}
	}
	return n
}
