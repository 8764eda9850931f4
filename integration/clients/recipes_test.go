package clients

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.etcd.io/etcd/client/v3/naming/endpoints"
	"golang.org/x/sync/errgroup"
)

// TestQueues: what several put in, several take out, each thing once.
func TestQueues(t *testing.T) {
	const workers, each = 3, 10
	n := start(t)
	var group errgroup.Group
	taken := make(chan string, workers*each)
	for w := range workers {
		in, out := recipe.NewQueue(n.Client(), "queue"), recipe.NewQueue(n.Client(), "queue")
		group.Go(func() error {
			for i := range each {
				if err := in.Enqueue(fmt.Sprintf("%d/%02d", w, i)); err != nil {
					return err
				}
			}
			return nil
		})
		group.Go(func() error {
			for range each {
				v, err := out.Dequeue()
				if err != nil {
					return err
				}
				taken <- v
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	close(taken)
	got := slices.Collect(values(taken))
	slices.Sort(got)
	require.Len(t, slices.Compact(got), workers*each)
}

func TestPriorityQueue(t *testing.T) {
	n := start(t)
	q := recipe.NewPriorityQueue(n.Client(), "queue")
	for i, priority := range []uint16{5, 1, 3, 1} {
		require.NoError(t, q.Enqueue(fmt.Sprintf("%d-%d", priority, i), priority))
	}
	for _, want := range []string{"1-1", "1-3", "3-2", "5-0"} {
		got, err := q.Dequeue()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// TestRWMutex: readers share, writers do not.
func TestRWMutex(t *testing.T) {
	n := start(t)
	var group errgroup.Group
	var readers, writers atomic.Int32
	for w := range 4 {
		m := recipe.NewRWMutex(newSession(t, n, 60), "lock")
		group.Go(func() error {
			for i := range 6 {
				if (w+i)%3 != 0 {
					if err := m.RLock(); err != nil {
						return err
					}
					readers.Add(1)
					if writers.Load() != 0 {
						t.Error("a reader at the same time as a writer")
					}
					readers.Add(-1)
					if err := m.RUnlock(); err != nil {
						return err
					}
					continue
				}
				if err := m.Lock(); err != nil {
					return err
				}
				if writers.Add(1) != 1 || readers.Load() != 0 {
					t.Error("a writer is not alone")
				}
				writers.Add(-1)
				if err := m.Unlock(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
}

// TestBarriers: no client passes before all have arrived.
func TestBarriers(t *testing.T) {
	const parties = 4
	n := start(t)
	gate := recipe.NewBarrier(n.Client(), "gate")
	require.NoError(t, gate.Hold())
	require.Error(t, gate.Hold(), "held already")
	var group errgroup.Group
	var opened atomic.Bool
	var inside atomic.Int32
	for range parties {
		waiting := recipe.NewBarrier(n.Client(), "gate")
		meeting := recipe.NewDoubleBarrier(newSession(t, n, 60), "meeting", parties)
		group.Go(func() error {
			if err := waiting.Wait(); err != nil {
				return err
			}
			if !opened.Load() {
				t.Error("the barrier was passed while it was held")
			}
			inside.Add(1)
			if err := meeting.Enter(); err != nil {
				return err
			}
			if got := inside.Load(); got != parties {
				t.Errorf("%d of %d are in the meeting", got, parties)
			}
			return meeting.Leave()
		})
	}
	opened.Store(true)
	require.NoError(t, gate.Release())
	require.NoError(t, group.Wait())
}

// TestEndpoints: the naming directory that gRPC clients resolve by.
func TestEndpoints(t *testing.T) {
	n, ctx := start(t), bounded(t)
	m, err := endpoints.NewManager(n.Client(), "service")
	require.NoError(t, err)
	updates, err := m.NewWatchChannel(ctx)
	require.NoError(t, err)
	lease, err := n.Client().Grant(ctx, 60)
	require.NoError(t, err)
	require.NoError(t, m.AddEndpoint(ctx, "service/a", endpoints.Endpoint{Addr: "a:1"}))
	got := <-updates
	require.Len(t, got, 1)
	require.Equal(t, endpoints.Add, got[0].Op)
	require.NoError(t, m.Update(ctx, []*endpoints.UpdateWithOpts{
		endpoints.NewAddUpdateOpts("service/b", endpoints.Endpoint{Addr: "b:1"}, clientv3.WithLease(lease.ID)),
		endpoints.NewDeleteUpdateOpts("service/a"),
	}))
	require.Len(t, <-updates, 2, "one transaction comes as one update")
	list, err := m.List(ctx)
	require.NoError(t, err)
	require.Equal(t, endpoints.Key2EndpointMap{"service/b": {Addr: "b:1"}}, list)
	_, err = n.Client().Revoke(ctx, lease.ID)
	require.NoError(t, err)
	got = <-updates
	require.Len(t, got, 1)
	require.Equal(t, endpoints.Delete, got[0].Op)
}
