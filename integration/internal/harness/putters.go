package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// Putters are clients that put separate keys all the time, while a test does something else.
type Putters struct {
	t    testing.TB
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	times []time.Duration
	err   error
}

// StartPutters starts them, until t ends.
func StartPutters(t testing.TB, clients ...*clientv3.Client) *Putters {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	p := &Putters{t: t, stop: stop}
	for i, c := range clients {
		p.done.Go(func() {
			for ctx.Err() == nil {
				started := time.Now()
				_, err := c.Put(ctx, fmt.Sprintf("other/%d", i), "value")
				if ctx.Err() != nil {
					return
				}
				p.mu.Lock()
				p.times, p.err = append(p.times, time.Since(started)), errors.Join(p.err, err)
				p.mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	t.Cleanup(func() { stop(); p.done.Wait() })
	return p
}

// Await waits until they have put n times since they started, or since the last Report.
func (p *Putters) Await(n int) {
	p.t.Helper()
	eventually.True(p.t, "puts", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.times) >= n
	})
}

// Report logs how long puts took since they started, or since the last Report, and returns the longest time. It fails
// the test if a put failed.
func (p *Putters) Report(what string) (longest time.Duration) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NoError(p.t, p.err, what)
	slices.Sort(p.times)
	at := func(q float64) time.Duration {
		if len(p.times) == 0 {
			return 0
		}
		return p.times[int(q*float64(len(p.times)-1))].Round(10 * time.Microsecond)
	}
	p.t.Logf("%s: %d puts of other clients, p50 %s, p99 %s, the longest %s", what, len(p.times), at(0.5), at(0.99), at(1))
	longest, p.times = at(1), nil
	return longest
}
