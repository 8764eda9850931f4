package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

const (
	writers = 64
	// watchesAKey is how many watches each key has.
	watchesAKey = 10
	// streamsANode is how many clients watch each node, each on one stream.
	streamsANode = 10
)

// TestManyWatches spreads watches of single keys over all nodes, and one of
// everything on each, while keys are written at a steady rate: each watch gets
// every write of its keys, in order, with the revision that the writer received.
func TestManyWatches(t *testing.T) {
	watches := harness.UsualOrLong(500, 10_000)
	perSecond := harness.UsualOrLong(500, 1_000)
	seconds := harness.UsualOrLong(5, 60)

	c := harness.StartCluster(t, harness.ClusterConfig{Patient: true})
	keys := make([]*written, max(1, watches/watchesAKey))
	for i := range keys {
		keys[i] = &written{key: fmt.Sprintf("/watched/%06d", i)}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var following sync.WaitGroup
	var followers []*follower
	for n := range c.Size() {
		for s := range streamsANode {
			client := c.Node(n).Client()
			for i := n*streamsANode + s; i < watches; i += c.Size() * streamsANode {
				followers = append(followers, &follower{client: client, of: keys[i%len(keys)]})
			}
		}
		followers = append(followers, &follower{client: c.Node(n).Client()})
	}
	for _, f := range followers {
		following.Go(func() { f.run(ctx) })
	}
	for _, f := range followers {
		select {
		case <-f.created():
		case <-time.After(wait):
			t.Fatal("a watch is not answered")
		}
	}

	start := time.Now()
	all := writeAll(t, c, keys, perSecond, time.Duration(seconds)*time.Second)
	took := time.Since(start)

	deadline := time.After(wait)
	events := 0
	for _, f := range followers {
		want := all
		if f.of != nil {
			want = f.of.revisions
		}
		require.NoError(t, f.await(deadline, len(want)))
		require.Equal(t, want, f.seen())
		events += len(want)
	}
	cancel()
	following.Wait()
	t.Logf("%d watches, %d writes in %s (%.0f/s), %d events, the last %s after the last write; memory of the nodes: %s",
		len(followers), len(all), took.Round(time.Millisecond), float64(len(all))/took.Seconds(), events,
		time.Since(start.Add(took)).Round(time.Millisecond), memory(t, c))
}

// written is a key and the revisions that its writer received.
type written struct {
	key       string
	revisions []int64
}

// writeAll writes the keys in turn for so long, and returns all revisions in
// order. A key has one writer, so that its revisions are in order too.
func writeAll(t *testing.T, c *harness.Cluster, keys []*written, perSecond int, d time.Duration) []int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	limiter := rate.NewLimiter(rate.Limit(perSecond), writers)
	var writing sync.WaitGroup
	failed := make(chan error, writers)
	for w := range min(writers, len(keys)) {
		client := c.Node(w % c.Size()).Client()
		writing.Go(func() {
			for i := w; ; i += writers {
				if i >= len(keys) {
					i = w
				}
				if limiter.Wait(ctx) != nil {
					return
				}
				request, cancel := context.WithTimeout(t.Context(), wait)
				r, err := client.Put(request, keys[i].key, "v")
				cancel()
				if err != nil {
					failed <- err
					return
				}
				keys[i].revisions = append(keys[i].revisions, r.Header.Revision)
			}
		})
	}
	writing.Wait()
	close(failed)
	require.NoError(t, <-failed)
	first, total := int64(2), 0
	for _, k := range keys {
		total += len(k.revisions)
	}
	all := make([]int64, total)
	for i := range all {
		all[i] = first + int64(i)
	}
	return all
}

// follower is a watch of a key, or of all.
type follower struct {
	client *clientv3.Client
	of     *written

	once  sync.Once
	ready chan struct{}

	mu        sync.Mutex
	revisions []int64
	grew      chan struct{} // closed and replaced when revisions grow
	err       error
}

func (f *follower) init() {
	f.once.Do(func() { f.ready, f.grew = make(chan struct{}), make(chan struct{}) })
}

func (f *follower) created() <-chan struct{} { f.init(); return f.ready }

func (f *follower) run(ctx context.Context) {
	f.init()
	key, opts := "/watched/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCreatedNotify()}
	if f.of != nil {
		key, opts = f.of.key, []clientv3.OpOption{clientv3.WithCreatedNotify()}
	}
	for r := range f.client.Watch(ctx, key, opts...) {
		if r.Created {
			close(f.ready)
		}
		f.mu.Lock()
		if err := r.Err(); err != nil && ctx.Err() == nil {
			f.err = errors.Join(f.err, err)
		}
		for _, e := range r.Events {
			f.revisions = append(f.revisions, e.Kv.ModRevision)
		}
		close(f.grew)
		f.grew = make(chan struct{})
		f.mu.Unlock()
	}
}

func (f *follower) seen() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revisions
}

// await returns when the watch has seen n events.
func (f *follower) await(deadline <-chan time.Time, n int) error {
	for {
		f.mu.Lock()
		seen, grew, err := len(f.revisions), f.grew, f.err
		f.mu.Unlock()
		if err != nil || seen >= n {
			return err
		}
		select {
		case <-grew:
		case <-deadline:
			return fmt.Errorf("a watch has seen %d of %d events", seen, n)
		}
	}
}

// memory returns the maximum memory that each node has used.
func memory(t *testing.T, c *harness.Cluster) string {
	t.Helper()
	var all []string
	for n := range c.Size() {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Node(n).Process().ID()))
		if err != nil {
			return "unknown on this system"
		}
		for line := range strings.Lines(string(status)) {
			if most, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				all = append(all, strings.TrimSpace(most))
			}
		}
	}
	if harness.TargetIsEtcd() {
		return strings.Join(all, ", ") + " (etcd)"
	}
	return strings.Join(all, ", ")
}
