package harness

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// Fill puts n keys below a prefix, which end in their numbers with seven digits, in transactions of many.
func Fill(t testing.TB, c *clientv3.Client, prefix string, n int, value string, opts ...clientv3.OpOption) {
	t.Helper()
	each := max(1, min(100, 1<<20/max(1, len(value))))
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Deadline)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for first := 0; first < n; first += each {
		group.Go(func() error {
			var ops []clientv3.Op
			for i := first; i < min(first+each, n); i++ {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s%07d", prefix, i), value, opts...))
			}
			return eventually.Poll(ctx, func(ctx context.Context) error { // the same puts do no harm twice
				_, err := c.Txn(ctx).Then(ops...).Commit()
				return err
			})
		})
	}
	require.NoError(t, group.Wait())
}
