package cluster

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	// writersANode write without a pause through each node, so that the first one
	// that can write again is found at once.
	writersANode = 2
	writeTimeout = 250 * time.Millisecond
	// settled is more than the answers to what the leader did before it went need.
	settled = 200 * time.Millisecond
	// steady is how long writes go on undisturbed before the leader goes.
	steady = time.Second
)

// BenchmarkFailover measures for how long writes fail when the leader is killed, is
// stopped, hands over, or freezes: the longest time after it between two acknowledged
// writes of any clients. etcd is measured for comparison:
//
//	go test ./chaos/cluster -run xxx -bench Failover -benchtime 20x
func BenchmarkFailover(b *testing.B) {
	for _, target := range []string{"sqlbrain", "etcd"} {
		b.Run(target, func(b *testing.B) {
			if target == "sqlbrain" && harness.TargetIsEtcd() {
				b.Skip("the target is etcd")
			}
			c := harness.StartCluster(b, harness.ClusterConfig{Etcd: target == "etcd"})
			for _, how := range []struct {
				name string
				do   func(b *testing.B, c *harness.Cluster, leader int)
				undo func(b *testing.B, c *harness.Cluster, leader int)
			}{
				{"killed", func(_ *testing.B, c *harness.Cluster, leader int) { c.Kill(leader) }, start},
				{"stopped", func(_ *testing.B, c *harness.Cluster, leader int) { c.Stop(leader) }, start},
				{"moved", move, func(*testing.B, *harness.Cluster, int) {}},
				// Like a machine that disappears: no connection is closed.
				{"frozen",
					func(b *testing.B, c *harness.Cluster, leader int) { c.Node(leader).Process().Pause(b) },
					func(b *testing.B, c *harness.Cluster, leader int) { c.Node(leader).Process().Resume(b) }},
			} {
				b.Run(how.name, func(b *testing.B) {
					w := startWriters(c)
					defer w.end()
					var gaps []time.Duration
					for range b.N {
						leader := c.Leader()
						<-time.After(steady)
						gone := time.Now()
						how.do(b, c, leader)
						w.await(b, gone)
						<-time.After(steady)
						gaps = append(gaps, w.longestGap(gone))
						how.undo(b, c, leader)
					}
					slices.Sort(gaps)
					at := func(quantile int) float64 {
						return float64(gaps[min(len(gaps)-1, len(gaps)*quantile/100)].Microseconds()) / 1000
					}
					b.ReportMetric(0, "ns/op") // says nothing
					b.ReportMetric(at(50), "ms-p50")
					b.ReportMetric(at(99), "ms-p99")
					b.ReportMetric(at(100), "ms-max")
				})
			}
		})
	}
}

func start(b *testing.B, c *harness.Cluster, node int) { b.Helper(); c.Start(node) }

func move(b *testing.B, c *harness.Cluster, leader int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), wait)
	defer cancel()
	if err := c.MoveLeader(ctx, leader); err != nil {
		b.Fatal(err)
	}
}

// writersOf writes without a pause and notes when writes were acknowledged.
type writersOf struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	acked []time.Time
}

func startWriters(c *harness.Cluster) *writersOf {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writersOf{cancel: cancel}
	for n := range c.Size() {
		for range writersANode {
			w.done.Go(func() { w.run(ctx, c.Node(n)) })
		}
	}
	return w
}

func (w *writersOf) run(ctx context.Context, n *harness.Node) {
	client, err := harness.NewClient(n.Endpoint())
	if err != nil {
		return
	}
	defer client.Close() //nolint:errcheck // the client is not used again
	for ctx.Err() == nil {
		if w.write(ctx, client) != nil {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

func (w *writersOf) write(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, err := client.Put(ctx, "k", "v"); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked = append(w.acked, time.Now())
	return nil
}

func (w *writersOf) end() {
	w.cancel()
	w.done.Wait()
}

// await waits until a write is acknowledged that the leader that went cannot have
// taken.
func (w *writersOf) await(b *testing.B, since time.Time) {
	b.Helper()
	eventually.True(b, "a client to write", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.acked[len(w.acked)-1].Sub(since) > settled
	})
}

// longestGap returns the longest time between acknowledgements, from the last
// one before since on.
func (w *writersOf) longestGap(since time.Time) (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, _ := slices.BinarySearchFunc(w.acked, since, func(t, s time.Time) int { return cmp.Compare(t.Sub(s), 0) })
	for i := max(1, at); i < len(w.acked); i++ {
		longest = max(longest, w.acked[i].Sub(w.acked[i-1]))
	}
	return max(longest, time.Since(w.acked[len(w.acked)-1]))
}
