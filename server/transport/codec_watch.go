package transport

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// marshalWatch writes r as protobuf does. This process makes every watch response that it sends, so there are no
// unknown fields.
func marshalWatch(r *pb.WatchResponse, to *account) (mem.BufferSlice, error) {
	header, err := proto.Marshal(r.Header)
	if err != nil {
		return nil, err
	}
	size := len(header) + len(r.CancelReason) + watchOverhead
	for _, e := range r.Events {
		size += 1 + protowire.SizeBytes(sizeEvent(e))
		for _, kv := range []*mvccpb.KeyValue{e.Kv, e.PrevKv} {
			if n := len(kv.GetValue()); n >= sharedEvents {
				size -= n
			}
		}
	}
	w := newMessage(size, sharedEvents, to)
	w.buf = w.room(len(header) + len(r.CancelReason) + watchOverhead)
	if r.Header != nil {
		w.buf = protowire.AppendBytes(append(w.buf, 1<<3|byte(protowire.BytesType)), header)
	}
	w.buf = appendInt64(w.buf, 2, r.WatchId)
	w.buf = appendBool(w.buf, 3, r.Created)
	w.buf = appendBool(w.buf, 4, r.Canceled)
	w.buf = appendInt64(w.buf, 5, r.CompactRevision)
	w.buf = appendBytes(w.buf, 6, []byte(r.CancelReason))
	w.buf = appendBool(w.buf, 7, r.Fragment)
	for _, e := range r.Events {
		w.buf = protowire.AppendVarint(append(w.room(2*maxFieldHead), 11<<3|byte(protowire.BytesType)), uint64(sizeEvent(e)))
		w.buf = appendInt64(w.buf, 1, int64(e.Type))
		w.keyValue(2, e.Kv)
		w.keyValue(3, e.PrevKv)
	}
	return w.done(), nil
}

// watchOverhead is most of what the fields of a response take apart from keys and
// values: tags, lengths and numbers.
const watchOverhead = 64

func sizeEvent(e *mvccpb.Event) int {
	n := sizeInt64(int64(e.Type))
	for _, kv := range []*mvccpb.KeyValue{e.Kv, e.PrevKv} {
		if kv != nil {
			n += 1 + protowire.SizeBytes(sizeKeyValue(kv))
		}
	}
	return n
}
