package bounds

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
)

// mostMemory is what a server may have after any of the calls. Go gives back what it used for the ones before only
// after minutes: with a transaction of many compares, which is decoded before anything can refuse it, that is some 25
// MB each.
const mostMemory = 2 << 30

// longField is a field of a request that a client can make as long as a message: a list, bytes or a string.
type longField struct {
	method protoreflect.MethodDescriptor
	path   []protoreflect.FieldDescriptor // from the request to it
}

func (f longField) String() string {
	var names []string
	for _, d := range f.path {
		names = append(names, string(d.Name()))
	}
	return string(f.method.FullName()) + " " + strings.Join(names, ".")
}

// longFields returns those of all requests of all services.
func longFields() (fields []longField) {
	for _, file := range []protoreflect.FileDescriptor{pb.File_rpc_proto, v3lockpb.File_v3lock_proto,
		v3electionpb.File_v3election_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				addFields(&fields, longField{method: m}, m.Input(), nil)
			}
		}
	}
	return fields
}

func addFields(all *[]longField, to longField, in protoreflect.MessageDescriptor, above []protoreflect.FullName) {
	if slices.Contains(above, in.FullName()) {
		return // a transaction in a transaction
	}
	above = append(slices.Clone(above), in.FullName())
	for i := range in.Fields().Len() {
		d := in.Fields().Get(i)
		f := longField{to.method, append(slices.Clone(to.path), d)}
		switch k := d.Kind(); {
		case d.IsList(), d.IsMap(), k == protoreflect.BytesKind, k == protoreflect.StringKind:
			*all = append(*all, f)
		}
		if d.Message() != nil {
			addFields(all, f, d.Message(), above)
		}
	}
}

// request returns a request whose field has about size bytes.
func (f longField) request(t *testing.T, size int) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(f.method.Input().FullName())
	require.NoError(t, err)
	root := kind.New()
	in := root
	last := f.path[len(f.path)-1]
	for _, d := range f.path[:len(f.path)-1] {
		complete(in)
		if d.IsList() {
			in = in.Mutable(d).List().AppendMutable().Message()
		} else {
			in = in.Mutable(d).Message()
		}
	}
	complete(in)
	if !last.IsList() {
		require.False(t, last.IsMap(), "%s: the test has no case for a map", f)
		in.Set(last, text(t, f, last, size))
		return root.Interface()
	}
	list := in.Mutable(last).List()
	for n := 0; n < size; {
		switch {
		case last.Message() != nil:
			e := list.AppendMutable().Message()
			complete(e)
			n += proto.Size(e.Interface()) + 2
		case last.Kind() == protoreflect.EnumKind:
			list.Append(protoreflect.ValueOfEnum(1))
			n++
		default:
			list.Append(text(t, f, last, 1))
			n += 3
		}
	}
	return root.Interface()
}

// text returns a value of size bytes.
func text(t *testing.T, f longField, d protoreflect.FieldDescriptor, size int) protoreflect.Value {
	t.Helper()
	switch d.Kind() {
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(strings.Repeat("k", size)))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.Repeat("k", size))
	}
	t.Fatalf("%s: the test has no case for a %v", f, d.Kind())
	return protoreflect.Value{}
}

// complete makes a message one that the server looks at: it has a key, and an operation is one.
func complete(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	if d := fields.ByName("key"); d != nil && d.Kind() == protoreflect.BytesKind {
		m.Set(d, protoreflect.ValueOfBytes([]byte("k")))
	}
	if d := fields.ByName("request_range"); d != nil && m.WhichOneof(d.ContainingOneof()) == nil {
		complete(m.Mutable(d).Message())
	}
}

// TestLongLists makes each field long that a client can make long, on many connections. What the server has of it in
// memory is bounded, and other clients are served.
func TestLongLists(t *testing.T) {
	fields := longFields()
	require.Greater(t, len(fields), 30)
	harness.OnAnyEngine(t, func(t *testing.T, e harness.Engine) {
		const connections, size = 16, 1400 << 10
		node, o := start(t, e)
		var conns []*grpc.ClientConn
		for range connections {
			c, err := grpc.NewClient(node.Host(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			conns = append(conns, c)
		}
		for _, f := range fields {
			r := f.request(t, size)
			before := memory(t, node)
			o.Report("until then")
			var sending sync.WaitGroup
			var mu sync.Mutex
			codes := make(map[string]int)
			for _, c := range conns {
				sending.Go(func() {
					said := history.Code(call(t.Context(), c, f.method, r)).String()
					mu.Lock()
					defer mu.Unlock()
					codes[said]++
				})
			}
			sending.Wait()
			o.Report(f.String())
			used := memory(t, node)
			t.Logf("%s: %v, %d MiB more, %d in all", f, codes, (used-before)>>20, used>>20)
			if !harness.TargetIsEtcd() {
				require.Less(t, used, mostMemory, "%s", f)
			}
		}
	})
}

// call sends a request, and waits for the answer, or for what a stream says first.
func call(ctx context.Context, c *grpc.ClientConn, m protoreflect.MethodDescriptor, r proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return err
	}
	name, answer := "/"+string(m.Parent().FullName())+"/"+string(m.Name()), kind.New().Interface()
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		return c.Invoke(ctx, name, r, answer)
	}
	stream, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(r); err != nil {
		return err
	}
	if !m.IsStreamingClient() {
		if err := stream.CloseSend(); err != nil {
			return err
		}
	}
	return stream.RecvMsg(answer)
}
