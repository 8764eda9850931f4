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
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
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

// TestIdleNodesReadTwiceASecond: a leader and its followers are awake for one statement and one message of the feeds at
// a time. The list of members is read each ten seconds.
func TestIdleNodesReadTwiceASecond(t *testing.T) {
	lock := lockTimes{timing.Lease, timing.RenewDeadline, timing.RetryPeriod}
	g := newGroup(t, newMemory(t), lock, 0)
	var stores []*statements
	g.joinThree(func(cfg *Config) {
		s := &statements{Store: cfg.Store}
		stores, cfg.Store = append(stores, s), s
	})
	g.leader()
	const (
		window  = 4 * time.Second
		glances = int64(window/(timing.CalmAnswer-timing.CalmAnswer/timing.Lead) + 1)
		lists   = int64(window/timing.CalmMemberLook + 1)
	)
	eventually.True(t, "all to be calm", func() bool {
		before := make([]int64, len(stores))
		for i, s := range stores {
			before[i] = s.n.Load()
		}
		time.Sleep(window)
		for i, s := range stores {
			if read := s.n.Load() - before[i]; read > glances+lists+2 { // a heartbeat may read, too
				t.Logf("member %d has sent %d statements", i, read)
				return false
			}
		}
		return true
	})
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
		time.Sleep(time.Minute) // its row says by then that it is calm
		require.True(t, n.Replica().Leading())
		before := store.n.Load()
		const d = 10 * time.Minute
		time.Sleep(d)
		read, glances := store.n.Load()-before, int64(d/timing.CalmAnswer+d/timing.CalmMemberLook)
		assert.InDelta(t, glances, read, float64(2*d/timing.MemberHeartbeat), "a heartbeat may read too")

		before = store.n.Load()
		Peer{n}.FeedEnded() // a follower may challenge it
		time.Sleep(timing.FollowerLost / 2)
		assert.GreaterOrEqual(t, store.n.Load()-before, int64(timing.FollowerLost/2/timing.Answer))
		require.NoError(t, n.Close(t.Context()))
		require.NoError(t, store.Close())
	})
}
