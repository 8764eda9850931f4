package load

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
)

// retryDelay is what a worker waits after an error that leaves the outcome
// open, so that an unavailable store does not get thousands of requests a second.
const retryDelay = 20 * time.Millisecond

// Config configures a load.
type Config struct {
	Recorder *history.Recorder
	Clients  []*clientv3.Client // workers take turns
	Workers  int
	Seed     uint64
	// Round distinguishes the leases of loads that share a Recorder and a Seed.
	Round int
	// RequestTimeout bounds each request.
	RequestTimeout time.Duration
	// Oldest is the oldest revision that may be read.
	Oldest int64
}

// Load is a running load.
type Load struct {
	cfg  Config
	stop chan struct{} // closed by Stop
	done sync.WaitGroup

	mu     sync.Mutex
	errors map[codes.Code]*errorCount
}

type errorCount struct {
	count int
	first error
}

// Run starts a load that continues until ctx ends or Stop is called.
func Run(ctx context.Context, cfg Config) *Load {
	l := &Load{cfg: cfg, stop: make(chan struct{}), errors: make(map[codes.Code]*errorCount)}
	for i := range cfg.Workers {
		w := newWorker(l, i)
		l.done.Go(func() { w.run(ctx) })
	}
	return l
}

// Stop ends the load and returns when no worker is waiting for an answer. It waits for
// requests in flight: a cancelled request may take effect at any later time, so the
// verification could not know how long to wait for it.
func (l *Load) Stop() {
	close(l.stop)
	l.done.Wait()
}

func (l *Load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// Errors returns the codes of the errors that requests ended with.
func (l *Load) Errors() []codes.Code {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.errors))
}

// Describe returns the errors as text.
func (l *Load) Describe() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, c := range slices.Sorted(maps.Keys(l.errors)) {
		fmt.Fprintf(&b, "%d × %v, the first: %v; ", l.errors[c].count, c, l.errors[c].first)
	}
	return b.String()
}

func (l *Load) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := history.Code(err)
	if l.errors[c] == nil {
		l.errors[c] = &errorCount{first: err}
	}
	l.errors[c].count++
}

// outcomeOf returns what an error implies about the request's effect. Only errors that
// the store returns before it does anything exclude an effect.
func outcomeOf(err error) history.Outcome {
	switch history.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition,
		codes.OutOfRange, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return history.Refused
	default:
		return history.Unknown
	}
}

// Sequence runs steps actions of a single worker, one after the other, and
// returns when the last is answered. The same Seed and Round give the same
// requests.
func Sequence(ctx context.Context, cfg Config, steps int) *Load {
	l := &Load{cfg: cfg, stop: make(chan struct{}), errors: make(map[codes.Code]*errorCount)}
	w := newWorker(l, 0)
	for range steps {
		w.next(ctx)
	}
	return l
}
