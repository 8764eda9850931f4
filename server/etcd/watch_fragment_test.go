package etcd

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

func TestFragments(t *testing.T) {
	event := func(bytes int) *mvccpb.Event {
		return &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: key, Value: make([]byte, bytes)}}
	}
	send := func(fragment bool, events ...*mvccpb.Event) (parts []*pb.WatchResponse) {
		r := &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 9}, WatchId: 4, Events: events}
		require.NoError(t, sendFragments(r, fragment, 1000, func(p *pb.WatchResponse) error {
			parts = append(parts, p)
			return nil
		}))
		return parts
	}
	six := []*mvccpb.Event{event(300), event(300), event(300), event(300), event(5000), event(300)}
	require.Len(t, send(false, six...), 1, "only watchers that ask for fragments get them")
	require.Len(t, send(true, event(5000)), 1, "one event is never split")
	require.Len(t, send(true, event(300), event(300)), 1)

	parts := send(true, six...)
	var sizes []int
	var events []*mvccpb.Event
	for i, p := range parts {
		sizes = append(sizes, len(p.Events))
		events = append(events, p.Events...)
		require.Equal(t, i < len(parts)-1, p.Fragment, "all parts but the last are fragments")
		require.EqualValues(t, 9, p.Header.Revision)
		require.EqualValues(t, 4, p.WatchId)
		if len(p.Events) > 1 {
			require.Less(t, proto.Size(p), 1000)
		}
	}
	require.Equal(t, []int{3, 1, 1, 1}, sizes)
	require.Equal(t, six, events)

	failure := errors.New("gone")
	err := sendFragments(&pb.WatchResponse{Events: six}, true, 1000, func(*pb.WatchResponse) error { return failure })
	require.ErrorIs(t, err, failure)
}

// The size of a part is added up event by event; it must be what the message
// really has.
func TestFragmentSizes(t *testing.T) {
	for _, n := range []int{0, 1, 100, 120, 128, 200, 16000, 16384, 70000, 3_000_000} {
		e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Value: make([]byte, n)}}
		require.Equal(t, proto.Size(&pb.WatchResponse{Events: []*mvccpb.Event{e}}), eventSize(proto.Size(e)), n)
	}
}
