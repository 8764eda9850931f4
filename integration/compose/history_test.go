package compose

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const prefix = "test/"

// history is what was acknowledged, and what watches through each node show of it.
type history struct {
	t       *testing.T
	last    *clientv3.Client // the client that writes the last key
	written []write
	watches []*watch
}

type write struct {
	key, value string
	revision   int64
}

// watch is one through one node, which lasts over the node's end.
type watch struct {
	service string
	events  []write
	err     error
	done    chan struct{} // closed when the watch has ended
	stop    context.CancelFunc
}

func newHistory(t *testing.T, nodes []*node) *history {
	t.Helper()
	h := &history{t: t, last: nodes[0].client}
	for _, n := range nodes {
		ctx, cancel := context.WithCancel(context.Background())
		w := &watch{service: n.service, done: make(chan struct{}), stop: cancel}
		events := n.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(1))
		go w.run(events)
		t.Cleanup(func() { cancel(); <-w.done })
		h.watches = append(h.watches, w)
	}
	return h
}

// lastKey is that of the event that ends the watches.
const lastKey = "last"

func (w *watch) run(answers clientv3.WatchChan) {
	defer close(w.done)
	for a := range answers {
		if w.err = a.Err(); w.err != nil {
			return
		}
		for _, e := range a.Events {
			if string(e.Kv.Key) == prefix+lastKey {
				return
			}
			w.events = append(w.events, write{string(e.Kv.Key), string(e.Kv.Value), e.Kv.ModRevision})
		}
	}
}

// put writes until it is acknowledged, each time another value.
func (h *history) put(c *clientv3.Client, key string) {
	h.t.Helper()
	attempt := 0
	eventually.Nil(h.t, eventually.Patience, func(ctx context.Context) error {
		attempt++
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		w := write{key: prefix + key, value: fmt.Sprint(attempt)}
		r, err := c.Put(ctx, w.key, w.value)
		if err == nil {
			w.revision = r.Header.Revision
			h.written = append(h.written, w)
		}
		return err
	})
}

// requireReadBy demands that each node shows all that was acknowledged.
func (h *history) requireReadBy(nodes ...*node) {
	h.t.Helper()
	for _, n := range nodes {
		ctx, cancel := context.WithTimeout(h.t.Context(), eventually.Patience)
		r, err := n.client.Get(ctx, prefix, clientv3.WithPrefix())
		cancel()
		require.NoError(h.t, err)
		var got []write
		for _, kv := range r.Kvs {
			got = append(got, write{string(kv.Key), string(kv.Value), kv.ModRevision})
		}
		require.ElementsMatch(h.t, h.written, got, n.service)
	}
}

// rejoin starts a node again, which is then one of three, and knows what it missed.
func (h *history) rejoin(p *project, n *node, all []*node) {
	h.t.Helper()
	begin := time.Now()
	require.NoError(h.t, p.e.ContainerStart(h.t.Context(), p.container(n.service).ID, container.StartOptions{}))
	eventually.Nil(h.t, eventually.Patience, n.ready)
	h.t.Logf("%s was ready again after %s", n.service, time.Since(begin).Round(10*time.Millisecond))
	h.put(n.client, "back-"+n.service+fmt.Sprint(len(h.written)))
	h.requireReadBy(all...)
	for _, other := range all {
		members, err := other.client.MemberList(h.t.Context())
		require.NoError(h.t, err)
		require.Len(h.t, members.Members, 3, "seen by %s", other.service)
	}
}

// requireWatched ends the watches, and demands that each showed every acknowledged
// write once, in order, also those that were made while its node was gone.
func (h *history) requireWatched() {
	h.t.Helper()
	h.put(h.last, lastKey)
	for _, w := range h.watches {
		select {
		case <-w.done:
		case <-time.After(eventually.Patience):
			h.t.Fatalf("the watch through %s has not ended", w.service)
		}
		require.NoError(h.t, w.err, w.service)
		require.Equal(h.t, h.watches[0].events, w.events, "%s and %s", h.watches[0].service, w.service)
		shown := map[write]bool{}
		for i, e := range w.events {
			require.True(h.t, i == 0 || w.events[i-1].revision < e.revision, "out of order: %v", w.events)
			shown[e] = true
		}
		for _, acknowledged := range h.written[:len(h.written)-1] {
			require.True(h.t, shown[acknowledged], "%s did not show %v", w.service, acknowledged)
		}
	}
}
