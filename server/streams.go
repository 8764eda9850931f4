package server

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// streams knows the streams that are open, so that the server can end them: all
// of them when it stops, those that ask for a leader when there is none. It also
// owns the goroutines that receive from streams: a receive cannot be interrupted
// but by the end of its stream, which comes after the handler's return.
type streams struct {
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

// run calls handle with ss so wrapped that it can be ended. The error of a
// stream that was ended is the reason it was ended for.
func (s *streams) run(ss grpc.ServerStream, method string, needsLeader bool, handle func(grpc.ServerStream) error) error {
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

// loseLeader ends the streams that asked for a leader.
func (s *streams) loseLeader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.open {
		if st.needsLeader {
			st.end(rpctypes.ErrGRPCNoLeader)
		}
	}
}

// stop ends the streams that have no end of their own, and refuses new ones.
func (s *streams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for st := range s.open {
		if !st.finite {
			st.end(rpctypes.ErrGRPCStopped)
		}
	}
}

// receive runs f, which receives from a stream, in a goroutine that waitReceivers
// waits for.
func (s *streams) receive(f func()) { s.receivers.Go(f) }

// waitReceivers returns when every receiver has; all connections must be closed.
func (s *streams) waitReceivers() { s.receivers.Wait() }
