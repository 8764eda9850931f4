package compat

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"
)

// rpc is one RPC of etcd's API.
type rpc struct {
	service, name string // the service with its package
	method        protoreflect.MethodDescriptor
}

// full is the name that calls use.
func (r rpc) full() string { return r.service + "/" + r.name }

// short is that name without etcdserverpb, which most have.
func (r rpc) short() string { return strings.TrimPrefix(r.full(), "etcdserverpb.") }

// etcdRPCs are all RPCs that etcd serves to clients, from the descriptors of its
// API, so that none is forgotten.
func etcdRPCs() (all []rpc) {
	for _, file := range []protoreflect.FileDescriptor{
		pb.File_rpc_proto, v3lockpb.File_v3lock_proto, v3electionpb.File_v3election_proto,
	} {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				all = append(all, rpc{string(s.FullName()), string(m.Name()), m})
			}
		}
	}
	// Of this one etcd serves no more.
	check := healthpb.File_grpc_health_v1_health_proto.Services().ByName("Health").Methods().ByName("Check")
	return append(all, rpc{"grpc.health.v1.Health", "Check", check})
}

// option is one option of a request, with the values or members it may have.
type option struct {
	name   string
	values []string // none: it is either there or not
}

// keys are the names that marks of the option have.
func (o option) keys() []string {
	if len(o.values) == 0 {
		return []string{o.name}
	}
	keys := make([]string, len(o.values))
	for i, v := range o.values {
		keys[i] = optionValue(o.name, v)
	}
	return keys
}

// options are all options of a request, as walkRequest names them.
func options(d protoreflect.MessageDescriptor) []option { return walkOptions(d, "", nil) }

func walkOptions(d protoreflect.MessageDescriptor, path string, inside []protoreflect.FullName) (all []option) {
	if slices.Contains(inside, d.FullName()) {
		return nil
	}
	inside = append(slices.Clone(inside), d.FullName())
	for i := range d.Oneofs().Len() {
		if union := d.Oneofs().Get(i); !union.IsSynthetic() {
			all = append(all, option{path + string(union.Name()), []string{noMember}})
		}
	}
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		o := option{name: path + string(field.Name())}
		if field.Enum() != nil {
			for j := range field.Enum().Values().Len() {
				o.values = append(o.values, string(field.Enum().Values().Get(j).Name()))
			}
			o.values = append(o.values, unknownValue)
		}
		all = append(all, o)
		if field.Message() != nil && !field.IsMap() {
			all = append(all, walkOptions(field.Message(), o.name+".", inside)...)
		}
	}
	return all
}

// webPath is one of etcd's HTTP paths on its client port.
type webPath struct{ method, path string }

func (p webPath) String() string { return p.method + " " + p.path }

// gatewayPaths are those of etcd's JSON gateway, from the API's descriptors.
func gatewayPaths() (all []webPath) {
	for _, r := range etcdRPCs() {
		rule, ok := proto.GetExtension(r.method.Options(), annotations.E_Http).(*annotations.HttpRule)
		if !ok || rule == nil {
			continue
		}
		for _, rule := range append([]*annotations.HttpRule{rule}, rule.AdditionalBindings...) {
			all = append(all, webPath{"POST", rule.GetPost()})
		}
	}
	return all
}

// webSocket stands for GET with an offer to go on with web sockets.
const webSocket = "WebSocket"

// otherPaths are the rest, which etcd's embed and etcdhttp packages register.
var otherPaths = []webPath{
	{webSocket, "/v3/watch"},
	{"GET", "/health"},
	{"GET", "/livez"}, {"GET", "/livez/serializable_read"},
	{"GET", "/readyz"}, {"GET", "/readyz/data_corruption"}, {"GET", "/readyz/serializable_read"},
	{"GET", "/readyz/linearizable_read"}, {"GET", "/readyz/non_learner"},
	{"GET", "/version"},
	{"GET", "/metrics"},
	{"GET", "/debug/vars"},
	{"GET", "/debug/pprof/"}, {"GET", "/debug/pprof/cmdline"}, {"GET", "/debug/pprof/profile"},
	{"GET", "/debug/pprof/symbol"}, {"GET", "/debug/pprof/trace"},
	{"GET", "/debug/pprof/goroutine"}, {"GET", "/debug/pprof/heap"}, {"GET", "/debug/pprof/allocs"},
	{"GET", "/debug/pprof/block"}, {"GET", "/debug/pprof/mutex"}, {"GET", "/debug/pprof/threadcreate"},
}

// probeWait is how long to wait for an RPC that answers nothing. An RPC that is
// not implemented returns its error at once, but at once is seconds on a busy machine.
const probeWait = 8 * time.Second

// serves reports whether the server implements an RPC, by what it answers to an
// empty request.
func (s *side) serves(t *testing.T, r rpc) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), probeWait)
	defer cancel()
	stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+r.full())
	if err == nil {
		if err = stream.SendMsg(&emptypb.Empty{}); err == nil || errors.Is(err, io.EOF) {
			err = cmp.Or(stream.CloseSend(), stream.RecvMsg(&emptypb.Empty{}))
		}
	}
	return status.Code(err) != codes.Unimplemented
}

// servesPath reports whether the server knows an HTTP path.
func (s *side) servesPath(t *testing.T, p webPath) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), probeWait)
	defer cancel()
	method, body := p.method, "{}"
	if method == webSocket {
		method, body = "GET", ""
	}
	q, err := http.NewRequestWithContext(ctx, method, s.node.Endpoint()+p.path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if p.method == webSocket {
		q.Header.Set("Connection", "Upgrade")
		q.Header.Set("Upgrade", "websocket")
		q.Header.Set("Sec-WebSocket-Version", "13")
		q.Header.Set("Sec-WebSocket-Key", "c3FsYnJhaW4gY29tcGF0IQ==")
	}
	resp, err := httpClient.Do(q)
	if err != nil {
		return errors.Is(err, context.DeadlineExceeded)
	}
	defer func() {
		cancel()
		_ = resp.Body.Close() // may be cut short
	}()
	if p.method == webSocket {
		return resp.StatusCode == http.StatusSwitchingProtocols
	}
	answer := make([]byte, 1000)
	n, err := io.ReadFull(resp.Body, answer)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) &&
		!errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	// A 404 with an error of etcd means that the path exists, but the requested item does not.
	found := resp.StatusCode != http.StatusNotFound || bytes.Contains(answer[:n], []byte("etcdserver:"))
	return found && resp.StatusCode != http.StatusNotImplemented
}
