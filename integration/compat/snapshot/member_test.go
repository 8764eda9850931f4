package snapshot

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// TestSnapshotsOfEveryMember: a follower's is the leader's.
func TestSnapshotsOfEveryMember(t *testing.T) {
	harness.NeedsDatabase(t)
	ctx, cancel := context.WithTimeout(t.Context(), programWait)
	defer cancel()
	datastore := enginetest.Database(t)
	var nodes []*harness.Node
	for i := range 2 {
		peerURL := fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t))
		n := harness.NewMember(t, false, datastore, harness.Member{
			Name: fmt.Sprint("n", i), ClientPort: enginetest.FreePort(t), PeerURL: peerURL, AdvertisedPeerURL: peerURL,
		})
		n.Start()
		nodes = append(nodes, n)
	}
	give(t, ctx, nodes[0].Client())
	leads := 0
	for _, n := range nodes {
		c := awaitClient(t, n, clientv3.Config{})
		was := stateOf(t, ctx, c)
		st, err := c.Status(ctx, n.Endpoint())
		require.NoError(t, err)
		if st.Leader == st.Header.MemberId {
			leads++
		}
		got := stateOf(t, ctx, awaitClient(t, restored(t, harness.SQLite.Datastore(t), save(t, n)), clientv3.Config{}))
		requireSame(t, was, got)
	}
	require.Equal(t, 1, leads)
}
