package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

const (
	// wait bounds what must happen at some time, attemptWait one attempt.
	wait        = 5 * time.Minute
	attemptWait = 10 * time.Second
)

// TestPartitionedFollower parts a node that does not lead from the others: it must
// not answer a linearizable read with what it last knew, and is as good as the
// others when it is back.
func TestPartitionedFollower(t *testing.T) {
	for name, fault := range map[string]harness.NetworkFault{"cut": harness.Cut, "swallowed": harness.Swallow} {
		t.Run(name, func(t *testing.T) {
			c := harness.StartCluster(t, harness.ClusterConfig{Network: true})
			parted := (c.Leader() + 1) % c.Size()
			other := (parted + 1) % c.Size()
			here, there := c.Node(parted).Client(), c.Node(other).Client()
			write(t, here, "k", "before")

			c.Network().Isolate(parted, fault)
			write(t, there, "k", "after")
			cannotRead(t, here)

			c.Network().Heal()
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				ctx, cancel := context.WithTimeout(context.Background(), attemptWait)
				defer cancel()
				r, err := here.Get(ctx, "k")
				require.NoError(t, err)
				require.Equal(t, "after", string(r.Kvs[0].Value))
			}, wait, 50*time.Millisecond)
			write(t, here, "k", "again")
		})
	}
}

// TestPartitionedLeader partitions the leader from all nodes and the database: another node
// becomes leader, and the old leader answers no linearizable read.
func TestPartitionedLeader(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Network: true})
	old := c.Leader()
	here, there := c.Node(old).Client(), c.Node((old+1)%c.Size()).Client()
	write(t, here, "k", "before")

	c.Network().Isolate(old, harness.Swallow)
	write(t, there, "k", "after")
	cannotRead(t, here)
	c.Network().Heal()
	write(t, here, "k", "again")
}

// cannotRead requires that a node from which nothing can be reached has no
// answer: it cannot know whether what it knows is still so.
func cannotRead(t *testing.T, c *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r, err := c.Get(ctx, "k")
	require.Error(t, err, "a node that is cut off answered a linearizable read: %v", r)
}

// write puts, again and again until it works.
func write(t *testing.T, c *clientv3.Client, key, value string) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		ctx, cancel := context.WithTimeout(context.Background(), attemptWait)
		defer cancel()
		_, err := c.Put(ctx, key, value)
		require.NoError(t, err)
	}, wait, 50*time.Millisecond)
}
