package transport

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Streams knows the streams that are open, so that the server can end them: all
// of them when it stops, those that ask for a leader when there is none. It also
// owns the goroutines that receive from streams: a receive cannot be interrupted
// but by the end of its stream, which comes after the handler's return.
type Streams struct {
	mu      sync.Mutex
	open    map[*stream]struct{}
	stopped bool

	receivers sync.WaitGroup
}

// stream is a grpc.ServerStream whose context the server can end.
type stream struct {
	grpc.ServerStream
	ctx         context.Context
	end         context.CancelCauseFunc
	needsLeader bool
	finite      bool // ends by itself; a server that stops lets it
}

func (s *stream) Context() context.Context { return s.ctx }

// finiteStreams are the methods whose streams are one long answer.
var finiteStreams = map[string]bool{
	"/etcdserverpb.KV/RangeStream":       true,
	"/etcdserverpb.Maintenance/Snapshot": true,
}

// Run calls handle with ss so wrapped that it can be ended. The error of a
// stream that was ended is the reason it was ended for.
func (s *Streams) Run(ss grpc.ServerStream, method string, needsLeader bool,
	handle func(grpc.ServerStream) error) error {
	ctx, end := context.WithCancelCause(ss.Context())
	defer end(nil)
	st := &stream{ServerStream: ss, ctx: ctx, end: end, needsLeader: needsLeader, finite: finiteStreams[method]}

	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return rpctypes.ErrGRPCStopped
	}
	if s.open == nil {
		s.open = make(map[*stream]struct{})
	}
	s.open[st] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.open, st)
		s.mu.Unlock()
	}()

	err := handle(st)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		if _, ours := status.FromError(cause); ours {
			return cause
		}
	}
	return err
}

// LoseLeader ends the streams that asked for a leader.
func (s *Streams) LoseLeader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.open {
		if st.needsLeader {
			st.end(rpctypes.ErrGRPCNoLeader)
		}
	}
}

// Stop ends the streams that would not end by themselves, and refuses new ones.
func (s *Streams) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for st := range s.open {
		if !st.finite {
			st.end(rpctypes.ErrGRPCStopped)
		}
	}
}

// Receive runs f, which receives from a stream, in a goroutine that WaitReceivers waits for.
func (s *Streams) Receive(f func()) { s.receivers.Go(f) }

// WaitReceivers returns when every receiver has; all connections must be closed.
func (s *Streams) WaitReceivers() { s.receivers.Wait() }
