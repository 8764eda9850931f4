package clients

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sync/errgroup"
)

// isolations that hold what was read until the commit.
var isolations = map[string]concurrency.Isolation{
	"SerializableSnapshot": concurrency.SerializableSnapshot,
	"Serializable":         concurrency.Serializable,
	"RepeatableReads":      concurrency.RepeatableReads,
}

// TestSTMKeepsTheSum: concurrent transfers between accounts lose and make no
// money, and no transaction sees a sum that never was.
func TestSTMKeepsTheSum(t *testing.T) {
	const accounts, each, workers, transfers = 5, 100, 5, 20
	for name, isolation := range isolations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, ctx := start(t), bounded(t)
			c := n.Client()
			for i := range accounts {
				_, err := c.Put(ctx, account(i), strconv.Itoa(each))
				require.NoError(t, err)
			}
			var group errgroup.Group
			for w := range workers {
				c := n.Client()
				rnd := rand.New(rand.NewPCG(1, uint64(w)))
				group.Go(func() error {
					for range transfers {
						from, to, amount := rnd.IntN(accounts), rnd.IntN(accounts), rnd.IntN(each/4)
						r, err := concurrency.NewSTM(c, func(s concurrency.STM) error {
							have, err := strconv.Atoi(s.Get(account(from)))
							if err != nil || from == to || have < amount {
								return err
							}
							had, err := strconv.Atoi(s.Get(account(to)))
							s.Put(account(from), strconv.Itoa(have-amount))
							s.Put(account(to), strconv.Itoa(had+amount))
							return err
						}, concurrency.WithIsolation(isolation), concurrency.WithAbortContext(ctx))
						if err == nil && !r.Succeeded {
							err = errors.New("a transaction came back without success")
						}
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
			require.NoError(t, group.Wait())
			sum := 0
			for _, balance := range contents(t, c, "account/") {
				b, err := strconv.Atoi(balance)
				require.NoError(t, err)
				require.GreaterOrEqual(t, b, 0)
				sum += b
			}
			require.Equal(t, accounts*each, sum)
		})
	}
}

func account(i int) string { return fmt.Sprintf("account/%d", i) }

// TestSTMDeletesAndLeases: deletions, revisions and options go through.
func TestSTMDeletesAndLeases(t *testing.T) {
	n, ctx := start(t), bounded(t)
	c := n.Client()
	put, err := c.Put(ctx, "old", "1")
	require.NoError(t, err)
	lease, err := c.Grant(ctx, 60)
	require.NoError(t, err)
	_, err = concurrency.NewSTM(c, func(s concurrency.STM) error {
		if rev := s.Rev("old"); rev != put.Header.Revision {
			return fmt.Errorf("revision %d, want %d", rev, put.Header.Revision)
		}
		s.Put("new", s.Get("old"), clientv3.WithLease(lease.ID))
		s.Del("old")
		if got := s.Get("old") + s.Get("new"); got != "1" {
			return fmt.Errorf("a transaction does not see its own writes: %q", got)
		}
		return nil
	}, concurrency.WithAbortContext(ctx))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"new": "1"}, contents(t, c, ""))
	_, err = c.Revoke(ctx, lease.ID)
	require.NoError(t, err)
	require.Empty(t, contents(t, c, ""))
}
