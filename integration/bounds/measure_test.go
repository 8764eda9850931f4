package bounds

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// memory returns the largest resident memory that the node's process has had, in bytes.
func memory(t testing.TB, node *harness.Node) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", node.Process().ID()))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if most, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(most), "kB")))
			require.NoError(t, err)
			return kilobytes << 10
		}
	}
	t.Fatalf("no VmHWM in\n%s", status)
	return 0
}

// other is another client, which puts all the time.
type other struct {
	t    testing.TB
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	times []time.Duration
	errs  []error
}

func startOther(t testing.TB, node *harness.Node) *other {
	t.Helper()
	c := node.Client()
	ctx, stop := context.WithCancel(t.Context())
	o := &other{t: t, stop: stop}
	o.done.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			started := time.Now()
			_, err := c.Put(ctx, fmt.Sprintf("other/%d", i%10), "value")
			if ctx.Err() != nil {
				return
			}
			o.mu.Lock()
			if err != nil {
				o.errs = append(o.errs, err)
			} else {
				o.times = append(o.times, time.Since(started))
			}
			o.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
	})
	t.Cleanup(func() { o.stop(); o.done.Wait() })
	return o
}

// begin forgets what was measured.
func (o *other) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.times, o.errs = nil, nil
}

// report logs what was measured since begin, and fails the test if a put has failed.
func (o *other) report(what string) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Empty(o.t, o.errs, what)
	slices.Sort(o.times)
	at := func(q float64) time.Duration {
		if len(o.times) == 0 {
			return 0
		}
		return o.times[int(q*float64(len(o.times)-1))].Round(10 * time.Microsecond)
	}
	o.t.Logf("%s: %d puts of another client, p50 %s, p99 %s", what, len(o.times), at(0.5), at(0.99))
}
