package program

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// TestDeletedSpaceIsUsable: a full database is usable again after the documented way out: delete, compact at the
// current revision, defragment, disarm. The compaction leaves as little as etcd's.
func TestDeletedSpaceIsUsable(t *testing.T) {
	const quota, value, left = 8 << 20, 200 << 10, 1 << 20
	programs := map[string]func(t *testing.T, flags ...string) *harness.Node{
		"etcd": func(t *testing.T, flags ...string) *harness.Node { return harness.StartEtcd(t, flags...) },
	}
	for _, e := range harness.Engines() {
		programs[e.Name] = func(t *testing.T, flags ...string) *harness.Node { return harness.StartNode(t, e, flags...) }
	}
	for name, start := range programs {
		t.Run(name, func(t *testing.T) {
			node := start(t, fmt.Sprintf("--quota-backend-bytes=%d", quota))
			c, ctx := node.Client(), t.Context()
			puts := func(prefix string, n int) (put int, err error) {
				for ; put < n && err == nil; put++ {
					_, err = c.Put(ctx, fmt.Sprintf("%s%03d", prefix, put), string(make([]byte, value)))
				}
				return put, err
			}
			size := func() int64 {
				status, err := c.Status(ctx, node.Endpoint())
				require.NoError(t, err)
				return status.DbSize
			}
			fill := func(prefix string) {
				_, err := puts(prefix, 10*quota/value)
				require.ErrorIs(t, err, rpctypes.ErrNoSpace)
			}
			wayOut := func(prefix string) {
				deleted, err := c.Delete(ctx, prefix, clientv3.WithPrefix())
				require.NoError(t, err)
				_, err = c.Compact(ctx, deleted.Header.Revision, clientv3.WithCompactPhysical())
				require.NoError(t, err)
				_, err = c.Defragment(ctx, node.Endpoint())
				require.NoError(t, err)
				require.Less(t, size(), int64(left), "after the deletion of all values")
				_, err = c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
				require.NoError(t, err)
			}
			fill("a")
			wayOut("a")
			_, err := puts("b", 20)
			require.NoError(t, err)
			fill("c")
			_, err = c.Delete(ctx, "c", clientv3.WithPrefix())
			require.NoError(t, err)
			wayOut("b")
			_, err = puts("d", 20)
			require.NoError(t, err)
		})
	}
}
