package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// phase measures one part of a workload. Safe for concurrent use.
type phase struct {
	name    string
	goal    int64        // steps it will take; 0: not known
	until   time.Time    // when it ends by itself; zero: at its goal
	steps   atomic.Int64 // steps done
	errs    atomic.Int64 // requests failed
	started time.Time
	elapsed time.Duration // set when it is over
	// What processes had used when it began and ended; nil if that is not known.
	before, after map[int]usage

	mu  sync.Mutex
	ops []*opStats // in order of first use
}

// opStats measures one kind of request.
type opStats struct {
	name string

	mu        sync.Mutex
	succeeded int64
	errors    map[codes.Code]int64
	keys      int64
	sent      int64
	received  int64
	latency   histogram // of those that succeeded
}

// sample is one answered request, or one event.
type sample struct {
	latency        time.Duration
	keys           int
	sent, received int // bytes of keys and values
	err            error
}

func (p *phase) op(name string) *opStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.ops {
		if o.name == name {
			return o
		}
	}
	o := &opStats{name: name, errors: map[codes.Code]int64{}}
	p.ops = append(p.ops, o)
	return o
}

func (p *phase) record(name string, s sample) {
	o := p.op(name)
	if s.err != nil {
		p.errs.Add(1)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent += int64(s.sent)
	if s.err != nil {
		o.errors[codeOf(s.err)]++
		return
	}
	o.succeeded++
	o.keys += int64(s.keys)
	o.received += int64(s.received)
	o.latency.record(s.latency)
}

// codeOf returns the gRPC code of an error of clientv3, which hides it behind
// etcd's errors and the context's.
func codeOf(err error) codes.Code {
	var etcd rpctypes.EtcdError
	switch {
	case errors.As(err, &etcd):
		return etcd.Code()
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return status.Code(err)
}

// passing reports whether a request that ended with err may succeed if it is
// repeated. Of a write, all such errors leave it open whether it took effect.
func passing(err error) bool {
	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Internal, codes.Unknown:
		return true
	case codes.ResourceExhausted:
		return errors.Is(err, rpctypes.ErrTooManyRequests)
	}
	return false
}
