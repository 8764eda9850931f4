package workload

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
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
	// The usage of processes when it began and ended.
	before, after []Usage

	mu  sync.Mutex
	ops []*opStats // by name, in order of first use
}

// opStats measures one kind of request.
type opStats struct {
	counted OpReport  // without rates and latency
	latency histogram // of those that succeeded
}

// sample is one answered request, or one event.
type sample struct {
	latency time.Duration
	keys    int
	err     error
}

func (p *phase) record(name string, s sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.ops, func(o *opStats) bool { return o.counted.Name == name })
	if i < 0 {
		i = len(p.ops)
		p.ops = append(p.ops, &opStats{counted: OpReport{Name: name}})
	}
	o := p.ops[i]
	if s.err != nil {
		p.errs.Add(1)
		if o.counted.Errors == nil {
			o.counted.Errors = map[string]int64{}
		}
		o.counted.Errors[history.Code(s.err).String()]++
		o.counted.Failed++
		return
	}
	o.counted.Succeeded++
	o.counted.Keys += int64(s.keys)
	o.latency.record(s.latency)
}

// passing reports whether a request that ended with err may succeed if it is
// repeated. After such an error it is unknown whether a write took effect.
func passing(err error) bool {
	switch history.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Internal, codes.Unknown:
		return true
	case codes.ResourceExhausted:
		return errors.Is(err, rpctypes.ErrTooManyRequests)
	}
	return false
}
