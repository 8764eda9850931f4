package compat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// callWait bounds every request, and every wait for what a stream must bring.
const callWait = 5 * time.Minute

// quota is given to both servers, since Status shows it.
const quota = "--quota-backend-bytes=2147483648"

// pair is an etcd and the server under test. Both began empty, and get the same
// requests in the same order.
type pair struct {
	etcd    *side
	subject *side
	slow    bool // see watchPair
}

// side is one of the servers.
type side struct {
	name string
	node *harness.Node
	conn *grpc.ClientConn
	// caller goes with every request: a token, for example.
	caller metadata.MD
}

// startPair starts both servers with flags that both know. etcd's data survives a
// restart, but need not survive a crash of the machine.
func startPair(t testing.TB, e harness.Engine, flags ...string) *pair {
	t.Helper()
	return startPairWith(t, e, nil, flags...)
}

// startPairWith is startPair with flags of sqlbrain's own.
func startPairWith(t testing.TB, e harness.Engine, own []string, flags ...string) *pair {
	t.Helper()
	flags = append(flags[:len(flags):len(flags)], quota)
	if harness.TargetIsEtcd() {
		own = nil
	}
	return &pair{
		etcd:    newSide(t, "etcd", harness.StartEtcd(t, append(flags[:len(flags):len(flags)], "--unsafe-no-fsync")...)),
		subject: newSide(t, "subject", harness.StartNode(t, e, append(flags, own...)...)),
		slow:    len(own) > 0,
	}
}

// small makes sqlbrain's caches and queues so small that little is answered from
// them.
var small = []string{
	"--watch-ring-events=6", "--watch-queue-events=4", "--object-cache-bytes=0", "--index-cache-entries=5",
}

// ownFlags are sqlbrain's flags for a seed: every other run has small caches.
func ownFlags(seed uint64) []string {
	if seed%2 == 0 {
		return small
	}
	return nil
}

func newSide(t testing.TB, name string, n *harness.Node) *side {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+n.Host(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return &side{name: name, node: n, conn: conn}
}

func (p *pair) sides() [2]*side { return [2]*side{p.etcd, p.subject} }

// call is one request to one RPC, named like "KV/Range", or with the package where
// that is not etcdserverpb: "v3lockpb.Lock/Unlock".
type call struct {
	method string
	req    proto.Message
}

// fullMethod is the name of an RPC with its package.
func fullMethod(method string) string {
	if service, _, _ := strings.Cut(method, "/"); strings.Contains(service, ".") {
		return method
	}
	return "etcdserverpb." + method
}

func (c call) String() string { return fmt.Sprintf("%s {%s}", c.method, brief(c.req)) }

// answer is what a server gave back: messages (several of a stream), or an error,
// or both.
type answer struct {
	messages []proto.Message
	err      error
}

func (a answer) String() string {
	s := ""
	for _, m := range a.messages {
		s += fmt.Sprintf("{%s} ", brief(m))
	}
	if a.err != nil {
		s += fmt.Sprintf("%s: %q", status.Code(a.err), status.Convert(a.err).Message())
	}
	return s
}

// only returns the answer's one message, nil if it is an error.
func (a answer) only() proto.Message {
	if a.err != nil || len(a.messages) != 1 {
		return nil
	}
	return a.messages[0]
}

// ask sends c to both servers at once and returns what each answers.
func (p *pair) ask(c call) (etcd, subject answer) {
	var both sync.WaitGroup
	both.Go(func() { etcd = p.etcd.ask(c) })
	both.Go(func() { subject = p.subject.ask(c) })
	both.Wait()
	return etcd, subject
}

func (s *side) ask(c call) answer {
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(context.Background(), s.caller), callWait)
	defer cancel()
	switch c.method {
	case "Watch/Watch":
		return s.firstOfWatch(ctx, c.req.(*pb.WatchCreateRequest))
	case observeMethod:
		return firstOf(v3electionpb.NewElectionClient(s.conn).Observe(ctx, c.req.(*v3electionpb.LeaderRequest)))
	case "KV/RangeStream":
		return gather(pb.NewKVClient(s.conn).RangeStream(ctx, c.req.(*pb.RangeRequest)))
	case "Maintenance/Snapshot":
		return gather(pb.NewMaintenanceClient(s.conn).Snapshot(ctx, c.req.(*pb.SnapshotRequest)))
	case "Lease/LeaseKeepAlive":
		return s.keepAlive(ctx, c.req.(*pb.LeaseKeepAliveRequest))
	}
	for {
		resp, err := newResponse(c.method)
		if err != nil {
			return answer{err: err}
		}
		if err := s.conn.Invoke(ctx, "/"+fullMethod(c.method), c.req, resp); err != nil {
			return answer{err: err}
		}
		// An etcd that has just started reports an old storage version for a while, or none.
		if st, ok := resp.(*pb.StatusResponse); !ok || st.StorageVersion != "" && st.StorageVersion != "3.5.0" {
			return answer{messages: []proto.Message{resp}}
		}
	}
}

// gather reads a stream of answers to its end.
func gather[T any](stream grpc.ServerStreamingClient[T], err error) answer {
	if err != nil {
		return answer{err: err}
	}
	var a answer
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			a.err = err
			return a
		}
		a.messages = append(a.messages, any(m).(proto.Message))
	}
}

// firstOf reads the first message of a stream.
func firstOf[T any](stream grpc.ServerStreamingClient[T], err error) answer {
	if err != nil {
		return answer{err: err}
	}
	m, err := stream.Recv()
	if err != nil {
		return answer{err: err}
	}
	return answer{messages: []proto.Message{any(m).(proto.Message)}}
}

// firstOfWatch creates a watch on a separate stream, and returns the first answer.
func (s *side) firstOfWatch(ctx context.Context, r *pb.WatchCreateRequest) answer {
	stream, err := pb.NewWatchClient(s.conn).Watch(ctx)
	if err != nil {
		return answer{err: err}
	}
	if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
		return answer{err: err}
	}
	m, err := stream.Recv()
	if err != nil {
		return answer{err: err}
	}
	return answer{messages: []proto.Message{m}}
}

// keepAlive renews a lease on a separate stream, which it then closes.
func (s *side) keepAlive(ctx context.Context, r *pb.LeaseKeepAliveRequest) answer {
	stream, err := pb.NewLeaseClient(s.conn).LeaseKeepAlive(ctx)
	if err != nil {
		return answer{err: err}
	}
	if err := stream.Send(r); err != nil {
		return answer{err: err}
	}
	m, err := stream.Recv()
	if err != nil {
		return answer{err: err}
	}
	a := answer{messages: []proto.Message{m}}
	if err := stream.CloseSend(); err != nil {
		a.err = err
	} else if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		a.err = fmt.Errorf("the end of the stream: %w", err)
	}
	return a
}

// newResponse makes an empty response of a unary method.
func newResponse(method string) (proto.Message, error) {
	service, rpc, _ := strings.Cut(fullMethod(method), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, err
	}
	m := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(rpc))
	if m == nil {
		return nil, fmt.Errorf("no method %s", method)
	}
	mt, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, err
	}
	return mt.New().Interface(), nil
}
