package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// FuzzRequests executes a sequence of requests on a whole server over a table in memory, from
// the transport down: the input decides on the requests, on whether they are sent as protocol
// buffers or as JSON, and on who sends them. Each answer must be that of requestModel. The
// server must not crash, nor answer with a code that means an error of the server. In the end
// every revision that is not compacted must read as the model has it, and each watch must have
// received exactly the events of its keys, in whole revisions and never after progress.
func FuzzRequests(f *testing.F) {
	for _, seed := range requestSeeds {
		f.Add([]byte(seed))
	}
	for seed := range uint64(*randomSeeds) {
		random := rand.New(rand.NewPCG(seed, 0))
		script := make([]byte, 100+random.IntN(500))
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 1<<10 {
			return
		}
		in := &scriptReader{rest: script}
		fz := startFuzzed(t, in.byte())
		for n := 0; n < 60 && len(in.rest) > 0; n++ {
			fz.step(in)
		}
		fz.finish()
	})
}

var randomSeeds = flag.Int("fuzz-seeds", 40, "how many random sequences are executed with the other tests")

// requestSeeds has sequences of one kind each. The fuzzer mixes them.
var requestSeeds = []string{
	"\x00\x00\x01\x01\x00\x00\x00\x00\x00\x01\x02\x01\x00\x00\x00\x03\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x01\x00\x00\x01",
	"\x00\x00\x01\x01\x00\x00\x00\x00\x05\x00\x01\x01\x01\x00\x01\x00\x02\x00\x01\x00\x03\x00\x02\x01\x00",
	"\x00\x08\x00\x01\x00\x00\x00\x01\x01\x01\x00\x00\x0b\x00\x01\x09\x00\x01\x0a\x00\x01",
	"\x00\x0d\x00\x00\x02\x00\x00\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00\x01\x02\x01\x00\x00\x00\x0f\x00\x0e\x00\x00",
	"\x00\x00\x00\x01\x01\x00\x00\x00\x07\x00\x02\x00\x0d\x00\x01\x00\x02\x00\x00\x00\x03\x00\x00\x00",
	"\x00\x10\x00\x10\x01\x10\x02\x10\x03\x10\x04\x10\x05\x00\x03\x01\x02\x03\x04\x05\x06",
	"\x00\x11\x00\x11\x01\x11\x02\x11\x03\x11\x04\x11\x05\x11\x06\x11\x07\x11\x08",
	"\x00\x12\x00\x05\x0a\x01a\x12\x01b\x13\x00\x0f{\"key\":\"YQ==\"}",
	"\x00\x14\x00\x01\x00\x02\x00\x00\x00\x00",
}

// scriptReader reads decisions from the input of the fuzzer; 0 after its end.
type scriptReader struct{ rest []byte }

func (s *scriptReader) byte() byte {
	if len(s.rest) == 0 {
		return 0
	}
	b := s.rest[0]
	s.rest = s.rest[1:]
	return b
}

func (s *scriptReader) pick(n int) int { return int(s.byte()) % n }

func (s *scriptReader) flag() bool { return s.byte()&1 == 1 }

// bytes returns as many bytes as the next one says.
func (s *scriptReader) bytes() []byte {
	n := min(int(s.byte()), len(s.rest))
	b := s.rest[:n]
	s.rest = s.rest[n:]
	return b
}

var fuzzedKeys = []string{"", "a", "b", "a/", "a/1", "a/2", "a0", "a\x00", "c$", "c%", "\x00", "\xff", "\xff\xff"}

func (s *scriptReader) key() []byte { return []byte(fuzzedKeys[s.pick(len(fuzzedKeys))]) }

func (s *scriptReader) end() []byte {
	switch s.pick(4) {
	case 0:
		return nil
	case 1:
		return []byte{0}
	default:
		return s.key()
	}
}

func (s *scriptReader) value() []byte { return bytes.Repeat([]byte{'v'}, s.pick(4)) }

func (s *scriptReader) lease() int64 { return []int64{0, 0, 1, 2, -3, math.MaxInt64}[s.pick(6)] }

// revision returns one next to the newest, to the compact revision, or to a limit.
func (s *scriptReader) revision(m *requestModel) int64 {
	b := s.byte()
	near := int64(b>>4)%4 - 2
	switch b % 8 {
	case 0, 1:
		return 0
	case 2, 3:
		return max(m.Revision()+near, 0)
	case 4:
		return max(m.Compacted+near, 0)
	case 5:
		return near
	case 6:
		return int64(b >> 3)
	default:
		return []int64{math.MaxInt64, math.MinInt64, -1, 1}[b>>4%4]
	}
}

func (s *scriptReader) rangeRequest(m *requestModel) *pb.RangeRequest {
	r := &pb.RangeRequest{Key: s.key(), RangeEnd: s.end(), Revision: s.revision(m)}
	options := s.byte()
	r.KeysOnly, r.CountOnly, r.Serializable = options&1 > 0, options&2 > 0, options&4 > 0
	if options&8 > 0 {
		r.Limit = int64(s.byte()) - 2
	}
	if options&16 > 0 {
		r.SortOrder, r.SortTarget = pb.RangeRequest_SortOrder(s.pick(4)), pb.RangeRequest_SortTarget(s.pick(6))
	}
	if options&32 > 0 {
		r.MinModRevision, r.MaxModRevision = s.revision(m), s.revision(m)
		r.MinCreateRevision, r.MaxCreateRevision = s.revision(m), s.revision(m)
	}
	return r
}

func (s *scriptReader) putRequest() *pb.PutRequest {
	r := &pb.PutRequest{Key: s.key(), Value: s.value(), Lease: s.lease()}
	options := s.byte()
	r.PrevKv, r.IgnoreValue, r.IgnoreLease = options&1 > 0, options&2 > 0, options&4 > 0
	if options&8 > 0 { // fitting
		if r.IgnoreValue {
			r.Value = nil
		}
		if r.IgnoreLease {
			r.Lease = 0
		}
	}
	return r
}

func (s *scriptReader) deleteRequest() *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: s.key(), RangeEnd: s.end(), PrevKv: s.flag()}
}

func (s *scriptReader) txnRequest(m *requestModel, depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	shape := s.byte()
	for range shape % 3 {
		c := &pb.Compare{Key: s.key(), RangeEnd: s.end(), Result: pb.Compare_CompareResult(s.pick(4))}
		switch s.pick(6) {
		case 0:
			c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: int64(s.pick(4))}
		case 1:
			c.Target, c.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: s.revision(m)}
		case 2:
			c.Target, c.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: s.revision(m)}
		case 3:
			c.Target, c.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: s.value()}
		case 4:
			c.Target, c.TargetUnion = pb.Compare_LEASE, &pb.Compare_Lease{Lease: s.lease()}
		}
		r.Compare = append(r.Compare, c)
	}
	ops := func(n byte) (all []*pb.RequestOp) {
		for range n {
			all = append(all, s.op(m, depth))
		}
		return all
	}
	r.Success = ops(shape >> 2 % 4)
	r.Failure = ops(shape >> 4 % 4)
	return r
}

func (s *scriptReader) op(m *requestModel, depth int) *pb.RequestOp {
	switch kind := s.pick(9); {
	case kind < 3:
		return opPut(s.putRequest())
	case kind < 5:
		return opDelete(s.deleteRequest())
	case kind < 7:
		return opRange(s.rangeRequest(m))
	case kind == 7 && depth < 3:
		return opTxn(s.txnRequest(m, depth+1))
	default:
		return &pb.RequestOp{}
	}
}

// fuzzed is a server and what it must answer.
type fuzzed struct {
	t     *testing.T
	s     *Server
	conn  *grpc.ClientConn
	model *requestModel
	// tokens are those of root and of the user u, whom the role r permits to read and write
	// [a, b) once the script has set that up.
	tokens  map[string]string
	newest  int64 // the highest revision of a header
	streams []*fuzzedStream
}

var fuzzedRuns int

// startFuzzed starts a server over an empty table, for the time of the test: with bit 0 of how
// without caches, with bit 1 with so little room for events that watches read the table.
func startFuzzed(t *testing.T, how byte) *fuzzed {
	t.Helper()
	own := replicaConfig() // a slow machine is no finding
	own.Exclusive, own.MinLeaseTTL = true, modelMinTTL
	if how&1 > 0 {
		own.RecordCache, own.Write.IndexCache = 0, 1
	}
	if how&2 > 0 {
		own.Watch.RingEvents, own.Watch.QueueEvents = 3, 4
	}
	t.Cleanup(func() {
		if fuzzedRuns++; fuzzedRuns%512 == 0 {
			require.Less(t, heap(), 1<<30, "after %d sequences", fuzzedRuns)
		}
	})
	s, _ := startOn(t, memstore.New(), own, nil, cheap,
		func(c *Config) { c.Logger = slog.New(slog.DiscardHandler) })
	conn, err := s.gateway.Connect()
	require.NoError(t, err)
	fz := &fuzzed{t: t, s: s, conn: conn, model: newRequestModel(), tokens: make(map[string]string)}
	t.Cleanup(func() {
		for _, st := range fz.streams {
			st.close()
		}
	})
	return fz
}

// authenticates reports whether authentication is on.
func (fz *fuzzed) authenticates() bool { return fz.s.node.users.Rows().Enabled }

func (fz *fuzzed) revision() int64 { return fz.s.node.Node.Revision() }

func (fz *fuzzed) alarmed() bool { return len(fz.s.node.Alarms.All()) > 0 }

// step executes the next request of the script.
func (fz *fuzzed) step(in *scriptReader) {
	m := fz.model
	kind, how := in.pick(21), in.byte()
	switch kind {
	case 0, 1, 2:
		fz.request(how, in.putRequest())
	case 3:
		fz.request(how, in.rangeRequest(m))
	case 4:
		fz.request(how, in.deleteRequest())
	case 5, 6:
		fz.request(how, in.txnRequest(m, 0))
	case 7:
		fz.request(how, &pb.CompactionRequest{Revision: in.revision(m), Physical: in.flag()})
	case 8:
		fz.request(how, &pb.LeaseGrantRequest{ID: in.lease(),
			TTL: []int64{0, -1, 60, 9_000_000_000, 9_000_000_001, math.MinInt64}[in.pick(6)]})
	case 9:
		fz.request(how, &pb.LeaseRevokeRequest{ID: in.lease()})
	case 10:
		fz.keepAlive(in.lease())
	case 11:
		fz.request(how, &pb.LeaseTimeToLiveRequest{ID: in.lease(), Keys: in.flag()})
	case 12:
		fz.request(how, &pb.LeaseLeasesRequest{})
	case 13:
		fz.watch(in, how)
	case 14:
		if len(fz.streams) > 0 {
			fz.streams[int(how)%len(fz.streams)].cancel(int64(in.pick(5)) - 1)
		}
	case 15:
		if len(fz.streams) > 0 {
			fz.streams[int(how)%len(fz.streams)].progress()
		}
	case 16:
		fz.auth(in, how)
	case 17:
		fz.maintenance(in, how)
	case 18:
		fz.raw(in, how)
	case 19:
		fz.json(in, how)
	case 20:
		fz.rangeStream(in.rangeRequest(m))
	}
}

// fuzzedMethod is how a request is called.
type fuzzedMethod struct {
	grpc, json      string
	request, answer protoreflect.MessageType
}

// fuzzedMethods are the unary methods of etcd's services, by the names of their requests.
var fuzzedMethods = func() map[string]fuzzedMethod {
	all := make(map[string]fuzzedMethod)
	typeOf := func(d protoreflect.MessageDescriptor) protoreflect.MessageType {
		return must(protoregistry.GlobalTypes.FindMessageByName(d.FullName()))
	}
	services := pb.File_rpc_proto.Services()
	for i := range services.Len() {
		service := services.Get(i)
		for j := range service.Methods().Len() {
			m := service.Methods().Get(j)
			if m.IsStreamingClient() || m.IsStreamingServer() {
				continue
			}
			rule := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
			all[string(m.Input().Name())] = fuzzedMethod{fmt.Sprintf("/%s/%s", service.FullName(), m.Name()), rule.GetPost(),
				typeOf(m.Input()), typeOf(m.Output())}
		}
	}
	return all
}()

// rawMethods are the unary methods in order.
var rawMethods = slices.Sorted(maps.Keys(fuzzedMethods))

// call calls a method as how says, and returns the answer.
func (fz *fuzzed) call(how byte, r proto.Message) (proto.Message, error) {
	method := fuzzedMethods[string(proto.MessageName(r).Name())]
	res := method.answer.New().Interface()
	who := []string{"", "root", "u", ""}[how>>1%4]
	if how&1 == 0 {
		return res, fz.conn.Invoke(fz.as(fz.t.Context(), who), method.grpc, r, res)
	}
	body, err := protojson.Marshal(r)
	require.NoError(fz.t, err)
	code, answer := fz.post(method.json, who, body)
	if code != http.StatusOK {
		var failure struct {
			Code    codes.Code
			Message string
		}
		if err := json.Unmarshal(answer, &failure); err != nil || failure.Code == codes.OK {
			fz.t.Fatalf("%s %s: status %d, %q: %v", method.json, body, code, answer, err)
		}
		return res, status.Error(failure.Code, failure.Message)
	}
	if err := protojson.Unmarshal(answer, res); err != nil {
		fz.t.Fatalf("%s %s: %q: %v", method.json, body, answer, err)
	}
	return res, nil
}

// as returns ctx with the token of a user, if there is one.
func (fz *fuzzed) as(ctx context.Context, who string) context.Context {
	if token := fz.tokens[who]; token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "token", token)
	}
	return ctx
}

func (fz *fuzzed) post(path, who string, body []byte) (code int, answer []byte) {
	r := httptest.NewRequestWithContext(fz.t.Context(), http.MethodPost, path, bytes.NewReader(body))
	if token := fz.tokens[who]; token != "" {
		r.Header.Set("Authorization", token)
	}
	w := httptest.NewRecorder()
	fz.s.http.Handler.ServeHTTP(w, r)
	return w.Code, w.Body.Bytes()
}

// acceptable fails the test for an error that stands for a fault of the server.
func (fz *fuzzed) acceptable(r any, err error) {
	fz.t.Helper()
	switch status.Code(err) {
	case codes.OK, codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange,
		codes.PermissionDenied,
		codes.Unauthenticated, codes.ResourceExhausted, codes.Unimplemented, codes.AlreadyExists:
	case codes.DataLoss:
		if !fz.alarmed() {
			fz.t.Fatalf("%T %v: %v", r, r, err)
		}
	default:
		if status.Convert(err).Message() == etcdauth.ErrNoPasswordUser.Error() {
			return // etcd has no code for it
		}
		fz.t.Fatalf("%T %v: %v", r, r, err)
	}
}

// header requires that revisions of headers do not decrease.
func (fz *fuzzed) header(r any, res proto.Message) {
	fz.t.Helper()
	with, ok := res.(interface{ GetHeader() *pb.ResponseHeader })
	if !ok || with.GetHeader() == nil {
		return
	}
	if strings.HasPrefix(string(proto.MessageName(res).Name()), "Member") {
		return // these have none, as in etcd
	}
	rev := with.GetHeader().GetRevision()
	if rev < fz.newest || rev > fz.revision() {
		fz.t.Fatalf("%T %v: header revision %d, after %d", r, r, rev, fz.newest)
	}
	fz.newest = rev
}

// plain returns an answer without what a model cannot know.
func plain(res proto.Message) proto.Message {
	if with, ok := res.(interface{ GetHeader() *pb.ResponseHeader }); ok && with.GetHeader() != nil {
		h := with.GetHeader()
		h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
	}
	switch r := res.(type) {
	case *pb.LeaseTimeToLiveResponse:
		if r.TTL > 0 {
			r.TTL = 0
		}
	case *pb.TxnResponse:
		for _, op := range r.Responses {
			if nested := op.GetResponseTxn(); nested != nil {
				if nested.Header == nil {
					nested.Header = &pb.ResponseHeader{}
				}
				plain(nested)
			}
		}
	}
	return res
}

// request executes a request on the server and on the model, and compares.
func (fz *fuzzed) request(how byte, r proto.Message) {
	fz.t.Helper()
	res, err := fz.call(how, r)
	fz.acceptable(r, err)
	if err == nil {
		fz.header(r, res)
	}
	authenticates := fz.authenticates()
	if err != nil && (authenticates || fz.alarmed()) {
		switch status.Code(err) {
		case codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted, codes.DataLoss:
			return // not executed; finish finds out if it was
		case codes.InvalidArgument:
			if authenticates && strings.Contains(err.Error(), "user name is empty") {
				return
			}
		}
	}
	if authenticates && err == nil {
		fz.permitted(how, r)
	}
	want, wantErr := fz.model.execute(r)
	if errors.Is(wantErr, errNotModelled) {
		return
	}
	if status.Code(err) != status.Code(wantErr) || status.Convert(err).Message() != status.Convert(wantErr).Message() {
		fz.t.Fatalf("%T %v: error %v, want %v", r, r, err, wantErr)
	}
	if err != nil {
		return
	}
	if g, ok := res.(*pb.LeaseGrantResponse); ok && want.(*pb.LeaseGrantResponse).ID == 0 {
		if _, used := fz.model.leases[g.ID]; used || g.ID <= 0 {
			fz.t.Fatalf("the server chose lease %d", g.ID)
		}
		fz.model.leases[g.ID] = g.TTL
		g.ID = 0
	}
	if !proto.Equal(plain(res), plain(proto.Clone(want))) {
		fz.t.Fatalf("%T %v:\n%v\nwant\n%v", r, r, res, want)
	}
}

// permitted fails the test if a request succeeded that its caller has no permission for.
func (fz *fuzzed) permitted(how byte, r proto.Message) {
	fz.t.Helper()
	switch who := []string{"", "root", "u", ""}[how>>1%4]; {
	case fz.tokens[who] == "":
		if txn, ok := r.(*pb.TxnRequest); ok && !touches(txn) {
			return // etcd permits it as well
		}
		fz.t.Fatalf("%T %v succeeded without a user", r, r)
	case who == "u":
		keys := func(key, end []byte) {
			if string(key) < "a" || len(end) == 0 && string(key) >= "b" || len(end) > 0 &&
				(len(end) == 1 && end[0] == 0 || string(end) > "b") {
				fz.t.Fatalf("%T %v succeeded without permission", r, r)
			}
		}
		switch r := r.(type) {
		case *pb.RangeRequest:
			keys(r.Key, r.RangeEnd)
		case *pb.PutRequest:
			keys(r.Key, nil)
		case *pb.DeleteRangeRequest:
			keys(r.Key, r.RangeEnd)
		case *pb.CompactionRequest:
			fz.t.Fatalf("%T %v succeeded without the root role", r, r)
		}
	}
}

// touches reports whether a transaction has a compare or an operation on keys.
func touches(r *pb.TxnRequest) bool {
	return len(r.Compare) > 0 || slices.ContainsFunc(slices.Concat(r.Success, r.Failure), func(op *pb.RequestOp) bool {
		t := op.GetRequestTxn()
		return t == nil || touches(t)
	})
}

func (fz *fuzzed) keepAlive(id int64) {
	ctx, cancel := context.WithCancel(fz.as(fz.t.Context(), "root"))
	defer cancel()
	stream, err := pb.NewLeaseClient(fz.conn).LeaseKeepAlive(ctx)
	require.NoError(fz.t, err)
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil && !errors.Is(err, io.EOF) {
		fz.t.Fatal(err)
	}
	res, err := stream.Recv()
	fz.acceptable("keep alive", err)
	if err != nil {
		return
	}
	fz.header("keep alive", res)
	if want := fz.model.leases[id]; res.ID != id || res.TTL != want {
		fz.t.Fatalf("keep alive of %d: %v, want TTL %d", id, res, want)
	}
}

// rangeStream compares the chunks of a stream with the model's range.
func (fz *fuzzed) rangeStream(r *pb.RangeRequest) {
	stream, err := pb.NewKVClient(fz.conn).RangeStream(fz.as(fz.t.Context(), "root"), r)
	require.NoError(fz.t, err)
	got := &pb.RangeResponse{}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		fz.acceptable(r, err)
		if err != nil {
			if _, wantErr := fz.model.keySpace(r); wantErr == nil && status.Code(err) != codes.Unimplemented &&
				!fz.authenticates() {
				fz.t.Fatalf("range stream %v: %v", r, err)
			}
			return
		}
		got.Kvs = append(got.Kvs, chunk.RangeResponse.Kvs...)
		if h := chunk.RangeResponse.Header; h != nil {
			got.Header, got.Count, got.More = h, chunk.RangeResponse.Count, chunk.RangeResponse.More
		}
	}
	want, err := fz.model.keySpace(r)
	if err != nil || !proto.Equal(plain(got), want) {
		fz.t.Fatalf("range stream %v:\n%v\nwant\n%v %v", r, got, want, err)
	}
}

// auth changes or reads users and roles. The step that enables authentication also gets tokens.
func (fz *fuzzed) auth(in *scriptReader, how byte) {
	name, role := []string{"root", "u", "x", ""}[in.pick(4)], []string{"root", "r", "x", ""}[in.pick(4)]
	must := func(r proto.Message) { _, err := fz.call(how&1|1<<1, r); fz.acceptable(r, err) }
	switch in.pick(18) {
	case 0, 1, 2: // a set-up in which most requests have an effect
		for _, user := range []string{"root", "u"} {
			must(&pb.AuthUserAddRequest{Name: user, Password: user})
		}
		must(&pb.AuthRoleAddRequest{Name: "root"})
		must(&pb.AuthRoleAddRequest{Name: "r"})
		must(&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
		must(&pb.AuthUserGrantRoleRequest{User: "u", Role: "r"})
		must(&pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: &authpb.Permission{PermType: authpb.Permission_READWRITE,
			Key: []byte("a"), RangeEnd: []byte("b")}})
		must(&pb.AuthEnableRequest{})
		for _, user := range []string{"root", "u"} {
			r := &pb.AuthenticateRequest{Name: user, Password: user}
			if res, err := fz.call(0, r); err == nil {
				fz.tokens[user] = res.(*pb.AuthenticateResponse).Token
			} else {
				fz.acceptable(r, err)
			}
		}
	case 3:
		must(&pb.AuthDisableRequest{})
	case 4:
		must(&pb.AuthUserAddRequest{Name: name, Password: name, Options: &authpb.UserAddOptions{NoPassword: in.flag()}})
	case 5:
		must(&pb.AuthUserDeleteRequest{Name: name})
	case 6:
		must(&pb.AuthUserGetRequest{Name: name})
	case 7:
		must(&pb.AuthUserListRequest{})
	case 8:
		if name == "u" {
			role = "r" // permitted knows what u may do
		}
		must(&pb.AuthUserGrantRoleRequest{User: name, Role: role})
	case 9:
		must(&pb.AuthUserRevokeRoleRequest{Name: name, Role: role})
	case 10:
		must(&pb.AuthRoleAddRequest{Name: role})
	case 11:
		must(&pb.AuthRoleDeleteRequest{Role: role})
	case 12:
		must(&pb.AuthRoleGetRequest{Role: role})
	case 13:
		must(&pb.AuthRoleListRequest{})
	case 14:
		must(&pb.AuthRoleRevokePermissionRequest{Role: role, Key: in.key(), RangeEnd: in.end()})
	case 15:
		must(&pb.AuthStatusRequest{})
	case 16:
		must(&pb.AuthUserChangePasswordRequest{Name: name, Password: name})
	case 17:
		must(&pb.AuthenticateRequest{Name: name, Password: role})
	}
}

func (fz *fuzzed) maintenance(in *scriptReader, how byte) {
	requests := []proto.Message{
		&pb.StatusRequest{}, &pb.AlarmRequest{}, &pb.DefragmentRequest{}, &pb.HashRequest{},
		&pb.HashKVRequest{Revision: in.revision(fz.model)}, &pb.MoveLeaderRequest{TargetID: uint64(in.byte())},
		&pb.DowngradeRequest{Action: pb.DowngradeRequest_DowngradeAction(in.pick(4)), Version: "3.6"},
		&pb.AlarmRequest{Action: pb.AlarmRequest_AlarmAction(in.pick(4)), Alarm: pb.AlarmType(in.pick(4)),
			MemberID: uint64(in.pick(2))},
		&pb.MemberListRequest{Linearizable: how&8 > 0}, &pb.MemberAddRequest{PeerURLs: []string{"http://x:1"}},
		&pb.MemberRemoveRequest{ID: uint64(in.byte())},
		&pb.MemberUpdateRequest{ID: uint64(in.byte()), PeerURLs: []string{fmt.Sprintf("http://%x:1", in.key())}},
		&pb.MemberPromoteRequest{ID: uint64(in.byte())},
	}
	r := requests[in.pick(len(requests)+1)%len(requests)]
	res, err := fz.call(how, r)
	fz.acceptable(r, err)
	if err == nil {
		fz.header(r, res)
	}
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }
func (bytesCodec) Name() string                    { return "proto" }

// raw sends the script's bytes as a message. What the server took them for is sent again to the
// model: both decode it in the same way.
func (fz *fuzzed) raw(in *scriptReader, how byte) {
	name := rawMethods[int(how)%len(rawMethods)]
	payload := in.bytes()
	r := fuzzedMethods[name].request.New().Interface()
	if err := proto.Unmarshal(payload, r); err == nil && changesKeys(r) {
		fz.request(0, r)
		return
	}
	var answer []byte
	err := fz.conn.Invoke(fz.t.Context(), fuzzedMethods[name].grpc, payload, &answer, grpc.ForceCodec(bytesCodec{}))
	if status.Code(err) == codes.Internal && strings.Contains(err.Error(), "unmarshal") {
		return // that is gRPC's own answer to them
	}
	fz.acceptable(name, err)
}

// changesKeys reports whether the model must know of a request.
func changesKeys(r proto.Message) bool {
	switch r.(type) {
	case *pb.RangeRequest, *pb.PutRequest, *pb.DeleteRangeRequest, *pb.TxnRequest, *pb.CompactionRequest,
		*pb.LeaseGrantRequest, *pb.LeaseRevokeRequest:
		return true
	}
	return false
}

// json posts the script's bytes to the gateway. A body that is a request of the model is
// executed there too.
func (fz *fuzzed) json(in *scriptReader, how byte) {
	name := rawMethods[int(how)%len(rawMethods)]
	body := in.bytes()
	r := fuzzedMethods[name].request.New().Interface()
	if protojson.Unmarshal(body, r) == nil && changesKeys(r) {
		fz.request(1, r)
		return
	}
	if changesKeys(r) {
		before := fz.revision()
		defer func() {
			if after := fz.revision(); after != before {
				fz.t.Fatalf("%s %q, which is no request, was executed", name, body)
			}
		}()
	}
	path := fuzzedMethods[name].json
	if how>>6 == 3 {
		path = "/v3/" + url.PathEscape(string(in.key()))
	}
	code, answer := fz.post(path, "", body)
	if code >= http.StatusInternalServerError && code != http.StatusNotImplemented {
		fz.t.Fatalf("%s %q: status %d %q", path, body, code, answer)
	}
}

// finish compares the whole content of the server with the model's.
func (fz *fuzzed) finish() {
	fz.t.Helper()
	m := fz.model
	if got := fz.revision(); got != m.Revision() {
		fz.t.Fatalf("the server is at revision %d, want %d", got, m.Revision())
	}
	if fz.authenticates() && fz.tokens["root"] == "" {
		return
	}
	for rev := max(m.Compacted, 1); rev <= m.Revision(); rev++ {
		for _, r := range []*pb.RangeRequest{
			{Key: []byte{0}, RangeEnd: []byte{0}, Revision: rev},
			{Key: []byte{0}, RangeEnd: []byte{0}, Revision: rev, CountOnly: true},
		} {
			fz.request(1<<1, r)
		}
	}
	if m.Compacted > 1 {
		fz.request(1<<1, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: m.Compacted - 1})
	}
	for id := range m.leases {
		fz.request(1<<1, &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
	}
	for _, st := range fz.streams {
		st.finish()
	}
}

// fuzzedStream is a stream of watches.
type fuzzedStream struct {
	fz     *fuzzed
	stream pb.Watch_WatchClient
	end    context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	news     sync.Cond
	err      error // why it ended
	created  int   // answers to creations
	watches  map[int64]*fuzzedWatch
	pending  *fuzzedWatch // the one that is being created
	requests int          // of progress
	bad      string       // what was wrong first
}

// fuzzedWatch is a watch of the stream.
type fuzzedWatch struct {
	request   *pb.WatchCreateRequest
	from      int64 // the first revision that it gets
	refused   bool
	reason    string // why it was refused
	until     int64  // the newest revision when the client cancelled it, 0 if it did not
	compacted int64  // the compact revision with which the server cancelled it
	got       []*mvccpb.Event
	bounds    []int64 // the newest revision of each response
	progress  []fuzzedProgress
}

// fuzzedProgress is a progress response to a stream, and how many events a watch had got by then.
type fuzzedProgress struct {
	revision int64
	got      int
}

// watch creates a watch, on a new stream or on one that exists, and waits for the answer.
func (fz *fuzzed) watch(in *scriptReader, how byte) {
	r := &pb.WatchCreateRequest{Key: in.key(), RangeEnd: in.end(), StartRevision: in.revision(fz.model),
		WatchId: int64(in.pick(4)) - 1}
	options := in.byte()
	r.PrevKv, r.Fragment, r.ProgressNotify = options&1 > 0, options&2 > 0, options&4 > 0
	if options&8 > 0 {
		r.Filters = append(r.Filters, pb.WatchCreateRequest_FilterType(options>>4&1))
	}
	if fz.authenticates() && fz.tokens["root"] == "" {
		return
	}
	if len(fz.streams) < 3 && (how&3 == 0 || len(fz.streams) == 0) {
		fz.streams = append(fz.streams, fz.newStream())
	}
	st := fz.streams[int(how>>2)%len(fz.streams)]
	st.create(r)
}

func (fz *fuzzed) newStream() *fuzzedStream {
	ctx, cancel := context.WithCancel(fz.as(context.Background(), "root"))
	stream, err := pb.NewWatchClient(fz.conn).Watch(ctx)
	require.NoError(fz.t, err)
	st := &fuzzedStream{fz: fz, stream: stream, end: cancel, done: make(chan struct{}),
		watches: make(map[int64]*fuzzedWatch)}
	st.news.L = &st.mu
	go st.receive()
	return st
}

func (st *fuzzedStream) close() {
	st.end()
	<-st.done
}

func (st *fuzzedStream) receive() {
	defer close(st.done)
	for {
		r, err := st.stream.Recv()
		st.mu.Lock()
		if err != nil {
			st.err = err
		} else {
			st.take(r)
		}
		st.news.Broadcast()
		st.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (st *fuzzedStream) complain(format string, args ...any) {
	if st.bad == "" {
		st.bad = fmt.Sprintf(format, args...)
	}
}

// take takes in a response.
func (st *fuzzedStream) take(r *pb.WatchResponse) {
	w := st.watches[r.WatchId]
	switch {
	case r.Created:
		st.created++
		if w = st.pending; w == nil {
			st.complain("created without a request: %v", r)
			return
		}
		if w.refused, w.reason = r.Canceled, r.CancelReason; !r.Canceled {
			if st.watches[r.WatchId] != nil && st.watches[r.WatchId].until == 0 {
				st.complain("watch id %d is given twice", r.WatchId)
			}
			st.watches[r.WatchId] = w
		}
		return
	case r.Canceled:
		if w == nil {
			st.complain("canceled without a watch: %v", r)
		} else if r.CompactRevision != 0 {
			w.compacted = r.CompactRevision
		} else if w.until == 0 {
			st.complain("watch %d was cancelled: %v", r.WatchId, r)
		}
		return
	case len(r.Events) == 0:
		if r.WatchId != -1 || st.requests == 0 {
			st.complain("a response without events: %v", r)
		}
		for _, w := range st.watches {
			if w.until == 0 && w.compacted == 0 {
				w.bounds = append(w.bounds, r.Header.Revision)
				w.progress = append(w.progress, fuzzedProgress{r.Header.Revision, len(w.got)})
			}
		}
		return
	case w == nil:
		st.complain("events without a watch: %v", r)
		return
	}
	first, last := r.Events[0].Kv.ModRevision, r.Events[len(r.Events)-1].Kv.ModRevision
	if n := len(w.bounds); n > 0 && first <= w.bounds[n-1] {
		st.complain("watch %d: revision %d after %d", r.WatchId, first, w.bounds[n-1])
	}
	if !r.Fragment {
		w.bounds = append(w.bounds, last)
	}
	if r.Header.Revision < last {
		st.complain("watch %d: revision %d under a header of %d", r.WatchId, last, r.Header.Revision)
	}
	w.got = append(w.got, r.Events...)
}

// await waits until reached returns true, or the stream ends.
func (st *fuzzedStream) await(what string, reached func() bool) {
	st.fz.t.Helper()
	late := time.AfterFunc(eventually.Patience, func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.complain("waiting for %s took more than %s", what, eventually.Patience)
		st.news.Broadcast()
	})
	defer late.Stop()
	st.mu.Lock()
	defer st.mu.Unlock()
	for !reached() && st.bad == "" && st.err == nil {
		st.news.Wait()
	}
	if st.bad != "" {
		st.fz.t.Fatal(st.bad)
	}
	if st.err != nil {
		st.fz.t.Fatalf("the stream ended: %v", st.err)
	}
}

func (st *fuzzedStream) send(u *pb.WatchRequest) {
	require.NoError(st.fz.t, st.stream.Send(u))
}

func (st *fuzzedStream) create(r *pb.WatchCreateRequest) {
	m := st.fz.model
	w := &fuzzedWatch{request: r, from: r.StartRevision}
	if w.from == 0 {
		w.from = m.Revision() + 1
	}
	st.mu.Lock()
	before := st.created
	st.pending = w
	used := r.WatchId != 0 && st.watches[r.WatchId] != nil && st.watches[r.WatchId].until == 0
	st.mu.Unlock()
	key := cmpOr(r.Key, []byte{0})
	empty := len(r.RangeEnd) > 0 && !bytes.Equal(r.RangeEnd, []byte{0}) && bytes.Compare(key, r.RangeEnd) >= 0
	st.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
	st.await("the creation of a watch", func() bool { return st.created > before })
	if w.refused && st.fz.authenticates() && slices.Contains(authReasons, w.reason) {
		return
	}
	if want := r.StartRevision < 0 || empty || used; w.refused != want {
		st.fz.t.Fatalf("watch %v: refused %v, want %v", r, w.refused, want)
	}
	if !w.refused && r.StartRevision > 0 && r.StartRevision < m.Compacted && r.StartRevision <= m.Revision() {
		st.await("the end of a watch of compacted revisions", func() bool { return w.compacted == m.Compacted })
	}
}

// authReasons are why a watch may be refused while authentication is on: the script may have
// removed the user, or the permission.
var authReasons = []string{
	rpctypes.ErrGRPCPermissionDenied.Error(), rpctypes.ErrGRPCInvalidAuthToken.Error(), rpctypes.ErrGRPCUserEmpty.Error(),
	rpctypes.ErrGRPCAuthOldRevision.Error(),
}

func cmpOr(b, other []byte) []byte {
	if len(b) == 0 {
		return other
	}
	return b
}

func (st *fuzzedStream) cancel(id int64) {
	st.mu.Lock()
	if w := st.watches[id]; w != nil && w.until == 0 {
		w.until = st.fz.model.Revision()
	}
	st.mu.Unlock()
	st.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

func (st *fuzzedStream) progress() {
	st.mu.Lock()
	st.requests++
	st.mu.Unlock()
	st.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

// finish waits for the events of all watches, and compares them with the model's.
func (st *fuzzedStream) finish() {
	st.fz.t.Helper()
	m := st.fz.model
	for _, w := range st.watches {
		want := m.watched(w.request, w.from)
		if w.until == 0 {
			st.await(fmt.Sprintf("%d events of watch %v", len(want), w.request),
				func() bool { return len(w.got) >= len(want) || w.compacted != 0 })
		}
	}
	st.close()
	if st.bad != "" {
		st.fz.t.Fatal(st.bad)
	}
	for id, w := range st.watches {
		want := m.watched(w.request, w.from)
		if len(w.got) > len(want) {
			st.fz.t.Fatalf("watch %d %v got %d events, want %d", id, w.request, len(w.got), len(want))
		}
		for _, p := range w.progress {
			for _, e := range want[p.got:] {
				if e.Kv.ModRevision <= p.revision {
					st.fz.t.Fatalf("watch %d %v: progress up to revision %d overtook %v", id, w.request, p.revision, e)
				}
			}
		}
		for i, e := range w.got {
			expected := proto.CloneOf(want[i])
			if !w.request.PrevKv || e.PrevKv == nil && expected.Kv.ModRevision <= m.Compacted {
				expected.PrevKv = nil
			}
			if !proto.Equal(e, expected) {
				st.fz.t.Fatalf("watch %d %v: event %d is\n%v\nwant\n%v", id, w.request, i, e, expected)
			}
		}
	}
}
