package server

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// unaryMethods are those of etcd's services, in the order of their descriptors.
func unaryMethods() (all []protoreflect.MethodDescriptor) {
	services := pb.File_rpc_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			if m := methods.Get(j); !m.IsStreamingClient() && !m.IsStreamingServer() {
				all = append(all, m)
			}
		}
	}
	return all
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }
func (bytesCodec) Name() string                    { return "proto" }

// FuzzBytes sends bytes as the request of any method, as a message and as JSON. The server must not crash, nor answer
// that the error is its own, nor execute what is no request. integration/compat compares the answers with etcd's.
func FuzzBytes(f *testing.F) {
	methods := unaryMethods()
	for i := range methods {
		f.Add(byte(i), []byte(nil))
		f.Add(byte(i), []byte("\x0a\x01a\x12\x01b"))
		f.Add(byte(i), []byte(`{"key":"YQ==","ID":"-9223372036854775808","TTL":1e3}`))
	}
	f.Fuzz(func(t *testing.T, method byte, payload []byte) {
		m := methods[int(method)%len(methods)]
		s := startReplica(t, cheap, func(c *Config) { c.Logger = slog.New(slog.DiscardHandler) })
		conn, err := s.gateway.Connect()
		require.NoError(t, err)
		input, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		require.NoError(t, err)

		before := s.node.Node.Revision()
		name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
		var answer []byte
		err = conn.Invoke(t.Context(), name, payload, &answer, grpc.ForceCodec(bytesCodec{}))
		if proto.Unmarshal(payload, input.New().Interface()) == nil {
			requireNoFault(t, status.Code(err), err)
		} else { // gRPC itself answers with Internal
			require.Error(t, err)
			require.Equal(t, before, s.node.Node.Revision())
		}

		before = s.node.Node.Revision()
		rule := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, rule.GetPost(),
			bytes.NewReader(payload)))
		if w.Code == http.StatusOK {
			return
		}
		var failure struct{ Code codes.Code }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &failure), "%q", w.Body)
		requireNoFault(t, failure.Code, w.Body)
		if protojson.Unmarshal(payload, input.New().Interface()) != nil {
			require.Equal(t, before, s.node.Node.Revision())
		}
	})
}

// requireNoFault fails the test for a code that stands for a fault of the server.
func requireNoFault(t *testing.T, code codes.Code, answer any) {
	t.Helper()
	for _, c := range []codes.Code{codes.Internal, codes.Unavailable, codes.DeadlineExceeded, codes.Aborted} {
		require.NotEqual(t, c, code, "%v", answer)
	}
}
