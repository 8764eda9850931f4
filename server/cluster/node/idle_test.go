package node

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// statements counts the statements of reads.
type statements struct {
	sqlstore.Store
	n atomic.Int64
}

func (s *statements) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.n.Add(1)
	return s.Store.Get(ctx, key)
}

func (s *statements) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	s.n.Add(1)
	return s.Store.Iter(ctx, r)
}

func (s *statements) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	s.n.Add(1)
	return s.Store.MultiGet(ctx, keys)
}

// TestAnIdleNodeAloneReadsTwiceASecond: all rows that it has to look at regularly are in one statement, but for
// those of all members.
func TestAnIdleNodeAloneReadsTwiceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &statements{Store: memstore.New()}
		cfg := DefaultConfig()
		cfg.Store, cfg.Version = store, "test"
		n, err := Join(t.Context(), cfg)
		require.NoError(t, err)
		n.Start()
		time.Sleep(time.Minute) // it leads by then, and has sent its first heartbeats
		require.True(t, n.Replica().Leading())
		before := store.n.Load()
		const d = 10 * time.Minute
		time.Sleep(d)
		read, reads := store.n.Load()-before, int64(d/(timing.Poll-timing.Poll/timing.Lead)+d/timing.MemberList)
		assert.InDelta(t, reads, read, float64(2*d/timing.MemberHeartbeat), "a heartbeat may read too")

		before = store.n.Load()
		Peer{n}.FeedEnded() // a follower may challenge it
		time.Sleep(timing.FastPolls / 2)
		assert.GreaterOrEqual(t, store.n.Load()-before, int64(timing.FastPolls/2/timing.FastPoll))
		require.NoError(t, n.Close(t.Context()))
		require.NoError(t, store.Close())
	})
}
