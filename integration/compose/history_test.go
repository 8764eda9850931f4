package compose

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const prefix = "test/"

// history is what was acknowledged: keys and their values.
type history struct {
	t       *testing.T
	written map[string]string
}

// put writes until it is acknowledged, each time another value.
func (h *history) put(c *clientv3.Client, key string) {
	h.t.Helper()
	attempt := 0
	eventually.Nil(h.t, eventually.Patience, func(ctx context.Context) error {
		attempt++
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		value := fmt.Sprint(attempt)
		_, err := c.Put(ctx, prefix+key, value)
		if err == nil {
			h.written[prefix+key] = value
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
		got := make(map[string]string)
		for _, kv := range r.Kvs {
			got[string(kv.Key)] = string(kv.Value)
		}
		require.Equal(h.t, h.written, got, n.service)
	}
}

// rejoin starts a node again, which is then one of three, and knows what it missed.
func (h *history) rejoin(p *project, n *node, all []*node) {
	h.t.Helper()
	begin := time.Now()
	p.e.docker("start", p.container(n.service).ID)
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
