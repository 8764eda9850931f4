package member

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// far is a store whose calls take a round trip, and as many more as a connection takes for each commit if connects is set.
type far struct {
	sqlstore.Store
	trip      time.Duration
	connects  atomic.Bool
	commits   atomic.Int64
	conflicts atomic.Int64
}

func (s *far) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := retry.Sleep(ctx, s.trip); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, key)
}

func (s *far) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	if err := retry.Sleep(ctx, s.trip); err != nil {
		return nil, err
	}
	return s.Store.MultiGet(ctx, keys)
}

func (s *far) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		takes := s.trip
		if s.connects.Load() {
			takes = (timing.ConnectTrips - 1) * s.trip
		}
		if err := retry.Sleep(ctx, takes); err != nil {
			return err
		}
		s.commits.Add(1)
		err := b.BatchWrite.Commit(ctx)
		if sqlstore.IsConflict(err) {
			s.conflicts.Add(1)
		}
		return err
	})
}

// TestHeartbeatsHaveTheTimeOfANewConnection: the database is so far away that one takes longer than a heartbeat may take beside it.
func TestHeartbeatsHaveTheTimeOfANewConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &buffer{}, &far{Store: memstore.New(), trip: 60 * time.Millisecond}
		require.Greater(t, (timing.ConnectTrips-1)*store.trip, timing.RenewDeadline/2)
		r, err := Join(t.Context(), Config{Store: store, Name: "n1", Logger: slog.New(slog.NewTextHandler(log, nil))})
		require.NoError(t, err)
		p := run(t, r)
		defer p.kill()
		leads := make(chan struct{})
		r.Campaign(func(ctx context.Context) error {
			close(leads)
			<-ctx.Done()
			return nil
		}, func(uint64) {})
		<-leads
		store.connects.Store(true)
		time.Sleep(10 * timing.MemberHeartbeat)
		require.NotContains(t, log.String(), "cannot send heartbeats")
		require.NotContains(t, log.String(), "cannot be read or written")
	})
}

func TestBoundsFollowTheShortestRoundTrip(t *testing.T) {
	var m trips
	require.Equal(t, time.Second, m.atLeast(time.Second), "nothing was measured")
	m.observe(time.Hour)
	require.Equal(t, timing.HeartbeatTimeout, m.atLeast(time.Second), "there is a bound")
	m.observe(100 * time.Millisecond)
	m.observe(time.Minute)
	require.Equal(t, timing.ConnectTrips*100*time.Millisecond, m.atLeast(time.Second))
	for range len(m.recent) {
		m.observe(time.Millisecond)
	}
	require.Equal(t, time.Second, m.atLeast(time.Second), "the floor is what is used beside the database")
}

// TestTwoMembersChallengeAsOne: each needs no longer than alone, and they do not undo each other's challenges.
func TestTwoMembersChallengeAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = 300 * time.Millisecond
		store := &far{Store: memstore.New(), trip: 50 * time.Millisecond}
		r, err := Join(t.Context(), Config{Store: store, Name: "n1"})
		require.NoError(t, err)
		t.Cleanup(r.metrics.withdraw)
		table, err := readTable(t.Context(), store)
		require.NoError(t, err)
		e, _ := table.named("n1")
		store.commits.Store(0)
		began := time.Now()
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				silent, _, err := challenge(t.Context(), store, e, silence)
				require.NoError(t, err)
				require.True(t, silent)
			})
		}
		both.Wait()
		require.GreaterOrEqual(t, time.Since(began), silence)
		require.LessOrEqual(t, time.Since(began), silence+(timing.Challenges+3)*store.trip)
		require.LessOrEqual(t, store.conflicts.Load(), int64(1))
		require.LessOrEqual(t, store.commits.Load(), int64(timing.Challenges+1))
	})
}
