package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// sendFragments sends r, in fragments of less than maxBytes bytes each where
// fragment allows it and more than one event is left. All but the last are
// marked as fragments. Each is a new message, because send may keep it.
func sendFragments(r *pb.WatchResponse, fragment bool, maxBytes int, send func(*pb.WatchResponse) error) error {
	if !fragment || len(r.Events) < 2 || proto.Size(r) < maxBytes {
		return send(r)
	}
	events := r.Events
	for {
		part := &pb.WatchResponse{
			Header:          r.Header,
			WatchId:         r.WatchId,
			Created:         r.Created,
			Canceled:        r.Canceled,
			CancelReason:    r.CancelReason,
			CompactRevision: r.CompactRevision,
			Fragment:        true,
		}
		n, size := 0, proto.Size(part)
		for n < len(events) {
			size += eventSize(proto.Size(events[n]))
			if n > 0 && size >= maxBytes {
				break
			}
			n++
		}
		part.Events, events = events[:n:n], events[n:]
		part.Fragment = len(events) > 0
		if err := send(part); err != nil || len(events) == 0 {
			return err
		}
	}
}

// eventSize is what an event of n bytes adds to a response.
func eventSize(n int) int { return protowire.SizeTag(11) + protowire.SizeBytes(n) }
