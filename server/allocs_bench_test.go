package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

// encoded is a codec of messages that are bytes. It ignores answers, so that a client allocates
// little of what is measured.
type encoded struct{}

func (encoded) Name() string                         { return "proto" }
func (encoded) Unmarshal(mem.BufferSlice, any) error { return nil }
func (encoded) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// requester sends requests to a server on SQLite, one at a time.
type requester struct {
	b    *testing.B
	conn *grpc.ClientConn
	node *replica.Replica
	rev  int64 // after all requests
}

func newRequester(b *testing.B) *requester {
	store := sqldbtest.Opener(engines.OpenDB).Store(b, sqldbtest.Databases()["sqlite"](b), sqlstore.Options{})
	own := replica.DefaultConfig()
	own.Logger, own.Exclusive = slog.New(slog.DiscardHandler), true
	n, err := replica.OpenLeader(b.Context(), store, own)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, n.Close(context.Background())) })
	cfg := testConfig(b)
	cfg.Logger = own.Logger
	s, err := New(cfg, n)
	require.NoError(b, err)
	runServer(b, s)
	r := &requester{b: b, conn: dial(b, s), node: n, rev: n.Revision()}
	load := &pb.TxnRequest{}
	for i := range requestKeys {
		load.Success = append(load.Success, opPut(r.put(i)))
	}
	r.send("KV/Txn", r.encode(load))
	r.rev = n.Revision()
	return r
}

// requestKeys is how many keys there are: as many as one transaction may put.
const requestKeys = 128

func requestKey(i int) []byte { return fmt.Appendf(nil, "/registry/pods/default/pod-%05d", i) }

// put returns a put of a new version, and counts it.
func (r *requester) put(i int) *pb.PutRequest {
	r.rev++
	return &pb.PutRequest{Key: requestKey(i), Value: make([]byte, 512)}
}

// swap returns kube-apiserver's transaction that writes the key of i if it is at a revision.
func (r *requester) swap(i int, at int64) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Target: pb.Compare_MOD, Key: requestKey(i), TargetUnion: &pb.Compare_ModRevision{ModRevision: at},
		}},
		Success: []*pb.RequestOp{opPut(r.put(i))},
		Failure: []*pb.RequestOp{opRange(&pb.RangeRequest{Key: requestKey(i)})},
	}
}

func (r *requester) encode(m proto.Message) *[]byte {
	bytes, err := proto.Marshal(m)
	require.NoError(r.b, err)
	return &bytes
}

func (r *requester) send(method string, request *[]byte) {
	if err := r.conn.Invoke(r.b.Context(), "/etcdserverpb."+method, request, nil,
		grpc.ForceCodecV2(encoded{})); err != nil {
		r.b.Fatal(err)
	}
}

// warmUp is how many requests are sent before those that are measured.
const warmUp = 100

// run measures one request after another: what request returns, encoded before. after, if not
// nil, is called after each.
func (r *requester) run(method string, request func(i int) proto.Message, after func()) {
	b := r.b
	requests := make([]*[]byte, warmUp+b.N)
	for i := range requests {
		requests[i] = r.encode(request(i))
	}
	send := func(requests []*[]byte) {
		for _, request := range requests {
			if r.send(method, request); after != nil {
				after()
			}
		}
	}
	send(requests[:warmUp])
	// A collection would empty pools, at times that depend on the machine.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	b.ReportAllocs()
	b.ResetTimer()
	send(requests[warmUp:])
	b.StopTimer()
	require.Equal(b, r.rev, r.node.Revision(), "every write has succeeded")
}

// watch opens a watch of all keys and returns what gets a value for each message.
func (r *requester) watch() <-chan struct{} {
	b := r.b
	stream, err := r.conn.NewStream(b.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/etcdserverpb.Watch/Watch", grpc.ForceCodecV2(encoded{}))
	require.NoError(b, err)
	require.NoError(b, stream.SendMsg(r.encode(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("/registry/"), RangeEnd: []byte("/registry0")},
	}})))
	messages := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for stream.RecvMsg(nil) == nil {
			select {
			case messages <- struct{}{}:
			case <-stream.Context().Done():
			}
		}
	}()
	b.Cleanup(func() { <-done }) // after the context of b has ended
	<-messages                   // it is created
	return messages
}

// BenchmarkRequest counts what a request allocates: the client's connection and the server,
// whose store is SQLite. 'make bench-allocs' compares that with docs/benchmarks/allocs.txt.
func BenchmarkRequest(b *testing.B) {
	measure := func(name, method string, request func(r *requester, i int) proto.Message) {
		b.Run(name, func(b *testing.B) {
			r := newRequester(b)
			r.run(method, func(i int) proto.Message { return request(r, i) }, nil)
		})
	}
	all := func() *pb.RangeRequest {
		return &pb.RangeRequest{Key: []byte("/registry/"), RangeEnd: []byte("/registry0")}
	}
	measure("put", "KV/Put", func(r *requester, i int) proto.Message { return r.put(i % requestKeys) })
	measure("create", "KV/Txn", func(r *requester, i int) proto.Message { return r.swap(requestKeys+i, 0) })
	measure("update", "KV/Txn", func(r *requester, i int) proto.Message { return r.swap(requestKeys-1, r.rev) })
	measure("get", "KV/Range", func(_ *requester, i int) proto.Message {
		return &pb.RangeRequest{Key: requestKey(i % requestKeys)}
	})
	measure("list-100", "KV/Range", func(*requester, int) proto.Message {
		q := all()
		q.Limit = 100
		return q
	})
	measure("count", "KV/Range", func(*requester, int) proto.Message {
		q := all()
		q.CountOnly = true
		return q
	})
	b.Run("put-10-watchers", func(b *testing.B) {
		r := newRequester(b)
		var watches []<-chan struct{}
		for range 10 {
			watches = append(watches, r.watch())
		}
		r.run("KV/Put", func(i int) proto.Message { return r.put(i % requestKeys) }, func() {
			for _, events := range watches {
				<-events
			}
		})
	})
}
