package transport

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const (
	// streamUnsent is how many bytes of a stream's messages may wait for its client before the next message does. It is
	// below gRPC's own limit of 64 KiB, at which nothing ends the wait but the end of the stream.
	streamUnsent = 56 << 10
	// stalledAfter is how long a client that takes nothing is left alone while answers exceed the budget.
	stalledAfter = 10 * time.Second
)

var (
	errNotTaken = status.Error(codes.DeadlineExceeded, "sqlbrain: the client has taken nothing of its answer for too long")
	// errShed has the code after which clients open a watch again.
	errShed = status.Error(codes.Unavailable, "sqlbrain: too many answers wait for clients, and this client takes nothing")
)

// Answers counts the bytes of the answers that wait in memory for their clients, and bounds them: a client decides how
// fast it takes what it asked for. Beyond the bound it ends the streams, and closes the connections, that have taken
// nothing for longest. Safe for concurrent use.
type Answers struct {
	conns           *Connections
	progressTimeout time.Duration // of answers of HTTP, and of streams that are one long answer, without progress
	budget
}

// NewAnswers returns the Answers of the connections of conns, which may have most bytes in all. progressTimeout bounds
// the wait for the client of an answer of HTTP, or of a stream that is one long answer, to take some of it.
func NewAnswers(conns *Connections, most int, progressTimeout time.Duration) *Answers {
	a := &Answers{conns: conns, progressTimeout: progressTimeout, budget: budget{most: int64(most), spare: stalledAfter}}
	conns.mu.Lock()
	defer conns.mu.Unlock()
	conns.answers = a
	return a
}

// account has the answers of a stream that is open, or those of all calls of a connection that have ended.
type account struct {
	claim
	got chan struct{} // has a token if bytes were taken
	// answered counts the streams of a connection that were answered, and whose reset was not forgiven yet.
	answered atomic.Int32
}

func (a *Answers) account(end func()) *account {
	return &account{claim: claim{of: &a.budget, end: end}, got: make(chan struct{}, 1)}
}

// answer counts a stream that is answered. Few are remembered, so that a client cannot save them.
func (c *account) answer() {
	if c != nil && c.answered.Load() < freeResets {
		c.answered.Add(1)
	}
}

// forgive returns how many of n resets are those of streams that were answered.
func (c *account) forgive(n int) int {
	if c == nil {
		return 0
	}
	n = min(n, int(c.answered.Load()))
	c.answered.Add(int32(-n))
	return n
}

// taken says that n bytes were sent to the client, or dropped.
func (c *account) taken(n int) {
	c.remove(n)
	select {
	case c.got <- struct{}{}:
	default:
	}
}

// wait returns once few of c's bytes are left: gRPC takes the next message at once then. progressTimeout bounds the
// wait until some are taken; 0: nothing does.
func (c *account) wait(ctx context.Context, progressTimeout time.Duration) error {
	if !c.waits() {
		return nil
	}
	if progressTimeout <= 0 {
		progressTimeout = math.MaxInt64
	}
	late := time.NewTimer(progressTimeout)
	defer late.Stop()
	for c.waits() {
		select {
		case <-c.got:
			late.Reset(progressTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late.C:
			return errNotTaken
		}
	}
	return nil
}

// waits reports whether the next message has to wait.
func (c *account) waits() bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.bytes >= streamUnsent
}

// outgoing is a message with the account that its bytes are counted in until they are sent. The codec takes it apart.
type outgoing struct {
	message any
	account *account // nil: they are not counted
}

// connection returns the account of the connection that a call came on; nil for one of this process.
func (a *Answers) connection(ctx context.Context) *account {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	return a.conns.account(p.Addr)
}

// plain has gRPC not compress the answer to a client that compressed its request, as it would: what is compressed is
// neither counted nor bounded.
func plain(ctx context.Context) error {
	s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if !ok || s.RecvCompress() == "" {
		return nil
	}
	return grpc.SetSendCompressor(ctx, encoding.Identity)
}

// Unary is the outermost interceptor of calls: it returns what only the codec of NewCodec understands.
func (a *Answers) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := plain(ctx); err != nil {
		return nil, err
	}
	resp, err := handler(ctx, req)
	if err != nil {
		return nil, err
	}
	switch r := resp.(type) { // the most frequent ones have few bytes
	case *pb.PutResponse:
		if r.PrevKv == nil {
			return resp, nil
		}
	case *pb.RangeResponse:
		if len(r.Kvs) == 0 {
			return resp, nil
		}
	}
	return &outgoing{resp, a.connection(ctx)}, nil
}

// Stream is the outermost interceptor of streams.
func (a *Answers) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := plain(ss.Context()); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ss.Context())
	defer end(nil)
	s := &answerStream{ServerStream: ss, ctx: ctx, account: a.account(func() { end(errShed) }),
		unanswered: a.connection(ss.Context())}
	if finiteStreams[info.FullMethod] {
		s.progressTimeout = a.progressTimeout
	}
	defer func() {
		// What is left of a stream that its client has ended is dropped.
		var rest *claim
		if c := a.connection(ss.Context()); c != nil && ss.Context().Err() == nil {
			rest = &c.claim
		}
		s.account.leave(rest)
	}()
	return handler(srv, s)
}

// answerStream is a stream whose messages are counted.
type answerStream struct {
	grpc.ServerStream
	ctx             context.Context
	account         *account
	unanswered      *account // of the connection, until the first answer
	progressTimeout time.Duration
}

func (s *answerStream) Context() context.Context { return s.ctx }

// SendMsg waits until the client has taken most of the messages before m.
func (s *answerStream) SendMsg(m any) error {
	if err := s.account.wait(s.ctx, s.progressTimeout); err != nil {
		return err
	}
	s.unanswered.answer()
	s.unanswered = nil
	return s.ServerStream.SendMsg(&outgoing{m, s.account})
}

// HTTP follows the answers of h on their way to clients.
func (a *Answers) HTTP(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &answerWriter{ResponseWriter: w, conn: http.NewResponseController(w), timeout: a.progressTimeout}
		out.claim = claim{of: &a.budget, end: func() { out.finish(time.Now()) }}
		defer func() {
			out.claim.close()
			out.finish(time.Now().Add(out.timeout))
		}()
		h.ServeHTTP(out, r)
	})
}

// answerWriter ends an answer whose client takes nothing of what is written for too long. Its bytes count until they are
// sent.
type answerWriter struct {
	http.ResponseWriter
	conn    *http.ResponseController
	timeout time.Duration
	claim   claim

	mu       sync.Mutex
	finished bool // the deadline stays
}

// Unwrap is for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *answerWriter) Write(p []byte) (n int, err error) {
	w.claim.add(len(p), false)
	defer w.claim.clear()
	for n < len(p) && err == nil {
		var sent int
		err = w.bounded(func() (err error) {
			sent, err = w.ResponseWriter.Write(p[n:min(n+chunkBytes, len(p))])
			return err
		})
		n += sent
		w.claim.add(0, true)
	}
	return n, err
}

// FlushError is for http.ResponseController.
func (w *answerWriter) FlushError() error { return w.bounded(w.conn.Flush) }

// bounded has the client take what send sends in time. The deadline does not stay: with HTTP/2 it would end a quiet
// stream.
func (w *answerWriter) bounded(send func() error) error {
	if err := w.setDeadline(time.Now().Add(w.timeout)); err != nil {
		return err
	}
	if err := send(); err != nil {
		return err
	}
	return w.setDeadline(time.Time{})
}

func (w *answerWriter) setDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		return errShed
	}
	if err := w.conn.SetWriteDeadline(at); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// finish is called when the answer must end, or the handler has returned. at bounds what the server is still sending.
func (w *answerWriter) finish(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.finished {
		w.finished = true
		_ = w.conn.SetWriteDeadline(at) // fails if the connection is closed
	}
}

// addrKey returns what a connection is known by: the net package gives each its own address. ok is false for
// connections of other kinds.
func addrKey(a net.Addr) (key net.Addr, ok bool) {
	switch a.(type) {
	case *net.TCPAddr, *net.UnixAddr:
		return a, true
	}
	return nil, false
}
