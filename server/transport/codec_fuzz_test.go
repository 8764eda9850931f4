package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// checkBytes fails unless the codec's bytes of m are read back as what protobuf's
// own bytes of m are read back as.
func checkBytes(t *testing.T, m proto.Message) {
	t.Helper()
	own, err := NewCodec().Marshal(m)
	require.NoError(t, err)
	defer own.Free()
	theirs, err := proto.Marshal(m)
	require.NoError(t, err)
	got, want := m.ProtoReflect().New().Interface(), m.ProtoReflect().New().Interface()
	require.NoError(t, proto.Unmarshal(own.Materialize(), got), "what is written of %T cannot be read", m)
	require.NoError(t, proto.Unmarshal(theirs, want))
	if !proto.Equal(got, want) {
		t.Fatalf("%T is read back as\n%v, want\n%v", m, got, want)
	}
}

// enough is a number of keys that the codec writes by hand.
const enough = 32

// full returns a message with every field set that its descriptor names, lists with
// enough elements to be written by hand.
func full(t *testing.T, d protoreflect.MessageType) protoreflect.Message {
	m := d.New()
	for i := range d.Descriptor().Fields().Len() {
		field := d.Descriptor().Fields().Get(i)
		switch {
		case field.IsMap():
			t.Fatalf("%s is a map: the test, and the codec, must learn it", field.FullName())
		case field.IsList():
			list := m.Mutable(field).List()
			for range enough {
				list.Append(some(t, field, list.NewElement()))
			}
		default:
			m.Set(field, some(t, field, m.NewField(field)))
		}
	}
	return m
}

// some returns a value of field that is not zero.
func some(t *testing.T, field protoreflect.FieldDescriptor, blank protoreflect.Value) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return protoreflect.ValueOfMessage(full(t, blank.Message().Type()))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(field.Number()))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(field.Number()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(field.Name()))
	default:
		t.Fatalf("%s is of kind %s: the test, and the codec, must learn it", field.FullName(), field.Kind())
		return blank
	}
}

// TestEveryFieldOfRangeResponsesIsWritten fails when a release of etcd's API adds a
// field that the codec does not know.
func TestEveryFieldOfRangeResponsesIsWritten(t *testing.T) {
	for _, m := range []proto.Message{&pb.RangeResponse{}, &pb.RangeStreamResponse{}} {
		checkBytes(t, full(t, m.ProtoReflect().Type()).Interface())
	}
}

// TestUnknownFieldsAreKept: elements that are nil, and fields of a newer
// release, which a follower passes on from its leader.
func TestUnknownFieldsAreKept(t *testing.T) {
	extra := protoreflect.RawFields(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 5))
	answer := func() *pb.RangeResponse {
		r := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 5}, Count: enough}
		for range enough {
			r.Kvs = append(r.Kvs, &mvccpb.KeyValue{Key: []byte("k")})
		}
		return r
	}
	for name, change := range map[string]func(*pb.RangeResponse, *pb.RangeStreamResponse){
		"nil key": func(r *pb.RangeResponse, _ *pb.RangeStreamResponse) { r.Kvs[7] = nil },
		"unknown field of a key": func(r *pb.RangeResponse,
			_ *pb.RangeStreamResponse) {
			r.Kvs[enough-1].ProtoReflect().SetUnknown(extra)
		},
		"of the header": func(r *pb.RangeResponse,
			_ *pb.RangeStreamResponse) {
			r.Header.ProtoReflect().SetUnknown(extra)
		},
		"of the answer": func(r *pb.RangeResponse,
			_ *pb.RangeStreamResponse) {
			r.ProtoReflect().SetUnknown(extra)
		},
		"of the streamed message": func(_ *pb.RangeResponse,
			s *pb.RangeStreamResponse) {
			s.ProtoReflect().SetUnknown(extra)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := answer()
			s := &pb.RangeStreamResponse{RangeResponse: r}
			change(r, s)
			checkBytes(t, r)
			checkBytes(t, s)
		})
	}
}
