package member

import (
	"context"
	"errors"
	"iter"
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

// far is a store whose calls take a round trip, and as many more as a connection takes for each commit if connects is
// set.
type far struct {
	sqlstore.Store
	trip      time.Duration
	connects  atomic.Bool
	commits   atomic.Int64
	conflicts atomic.Int64
}

// after waits for d, calls do, and waits for the answer.
func (s *far) after(ctx context.Context, d time.Duration, do func() error) error {
	if err := retry.Sleep(ctx, d); err != nil {
		return err
	}
	err := do()
	return errors.Join(err, retry.Sleep(ctx, s.trip-s.trip/2))
}

func (s *far) Get(ctx context.Context, key []byte) (value []byte, err error) {
	err = s.after(ctx, s.trip/2, func() (err error) { value, err = s.Store.Get(ctx, key); return err })
	return value, err
}

func (s *far) MultiGet(ctx context.Context, keys [][]byte) (values [][]byte, err error) {
	err = s.after(ctx, s.trip/2, func() (err error) { values, err = s.Store.MultiGet(ctx, keys); return err })
	return values, err
}

// Iter returns rows that are read at once.
func (s *far) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	return func(yield func(sqlstore.Row, error) bool) {
		var rows []sqlstore.Row
		err := s.after(ctx, s.trip/2, func() error {
			for row, err := range s.Store.Iter(ctx, r) {
				if err != nil {
					return err
				}
				rows = append(rows, row)
			}
			return nil
		})
		for _, row := range rows {
			if err == nil && !yield(row, nil) {
				return
			}
		}
		if err != nil {
			yield(sqlstore.Row{}, err)
		}
	}
}

func (s *far) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		takes := s.trip / 2
		if s.connects.Load() {
			takes += (timing.ConnectTrips - 3) * s.trip // a look may come before
		}
		return s.after(ctx, takes, func() error {
			s.commits.Add(1)
			err := b.BatchWrite.Commit(ctx)
			if sqlstore.IsConflict(err) {
				s.conflicts.Add(1)
			}
			return err
		})
	})
}

// awaitLead has r campaign, and returns once it leads. It leads for as long as it holds the lock.
func awaitLead(r *Registry) {
	leads := make(chan struct{})
	r.Campaign(func(ctx context.Context) error {
		close(leads)
		<-ctx.Done()
		return nil
	}, func(uint64) {})
	<-leads
}

// TestHeartbeatsHaveTheTimeOfANewConnection: the database is so far away that one takes longer than a heartbeat may
// take beside it.
func TestHeartbeatsHaveTheTimeOfANewConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &buffer{}, &far{Store: memstore.New(), trip: 60 * time.Millisecond}
		require.Greater(t, (timing.ConnectTrips-2)*store.trip, timing.RenewDeadline/2)
		r, err := Join(t.Context(), Config{Store: store, Name: "n1", Logger: slog.New(slog.NewTextHandler(log, nil))})
		require.NoError(t, err)
		p := run(t, r)
		defer p.kill()
		awaitLead(r)
		store.connects.Store(true)
		time.Sleep(10 * timing.MemberHeartbeat)
		require.NotContains(t, log.String(), "cannot send heartbeats")
		require.NotContains(t, log.String(), "cannot be read or written")
	})
}

func TestBoundsFollowTheShortestRoundTrip(t *testing.T) {
	const most = 2 * time.Second
	var m trips
	require.Equal(t, time.Second, m.atLeast(time.Second, most), "nothing was measured")
	m.observe(time.Hour)
	require.Equal(t, most, m.atLeast(time.Second, most), "there is a bound")
	m.observe(100 * time.Millisecond)
	m.observe(time.Minute)
	require.Equal(t, timing.ConnectTrips*100*time.Millisecond, m.atLeast(time.Second, most))
	for range len(m.recent) {
		m.observe(time.Millisecond)
	}
	require.Equal(t, time.Second, m.atLeast(time.Second, most), "the floor is what is used near the database")
}

// roundTrips are distances to a database.
var roundTrips = []time.Duration{
	time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
}

// TestNoBoundExceedsTheRenewDeadline, and one call that hangs leaves time for another one in the lease.
func TestNoBoundExceedsTheRenewDeadline(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{LeaseDuration: 2 * time.Second, RenewDeadline: 800 * time.Millisecond},
		{LeaseDuration: time.Hour, RenewDeadline: time.Minute},
	} {
		for _, trip := range roundTrips {
			synctest.Test(t, func(t *testing.T) {
				cfg := cfg
				cfg.Store, cfg.Name = &far{Store: memstore.New(), trip: trip}, "n1"
				r, err := Join(t.Context(), cfg)
				require.NoError(t, err)
				p := run(t, r)
				defer p.kill()
				awaitLead(r)
				time.Sleep(time.Second)
				require.GreaterOrEqual(t, r.timeout(), r.cfg.leaderTimeout())
				require.GreaterOrEqual(t, r.timeout(), min(timing.ConnectTrips*trip, timing.HeartbeatTimeout,
					r.cfg.LeaseDuration/2, r.cfg.RenewDeadline))
				require.LessOrEqual(t, r.timeout(), r.cfg.RenewDeadline)
				require.LessOrEqual(t, r.timeout(), r.cfg.LeaseDuration/2)
			})
		}
	}
}

// TestLeaderAnswersChallengesOfAFarDatabase: at most one of them makes the swap of its answer fail. One that is gone is
// found out in few round trips.
func TestLeaderAnswersChallengesOfAFarDatabase(t *testing.T) {
	const silence = 3 * timing.Answer
	for _, trip := range roundTrips {
		t.Run(trip.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := memstore.New()
				leads, asks := &far{Store: shared, trip: trip}, &far{Store: shared, trip: trip}
				leader, err := Join(t.Context(), Config{Store: leads, Name: "n1"})
				require.NoError(t, err)
				p := run(t, leader)
				defer p.kill()
				other, err := Join(t.Context(), Config{Store: asks, Name: "n2"})
				require.NoError(t, err)
				t.Cleanup(other.metrics.withdraw)
				silent := func() bool {
					_, silent, err := other.silent(t.Context(), leader.Self().ID, timing.DeathSilence)
					require.NoError(t, err)
					return silent
				}
				for n := range 40 { // at other moments between two looks of the leader
					time.Sleep(time.Duration(n) * 13 * time.Millisecond)
					before := leads.conflicts.Load()
					require.False(t, silent())
					require.LessOrEqual(t, leads.conflicts.Load()-before, int64(1))
				}
				p.kill()
				began := time.Now()
				require.True(t, silent())
				require.GreaterOrEqual(t, time.Since(began), silence)
				require.LessOrEqual(t, time.Since(began), silence+(timing.Challenges+2)*trip)
			})
		})
	}
}

// TestOwnChallengeOfUnknownOutcomeIsNotAnotherMembers: nothing is left to others who do not challenge.
func TestOwnChallengeOfUnknownOutcomeIsNotAnotherMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = 300 * time.Millisecond
		store := memstore.New()
		r, err := Join(t.Context(), Config{Store: store, Name: "n1"})
		require.NoError(t, err)
		t.Cleanup(r.metrics.withdraw)
		table, err := readTable(t.Context(), store)
		require.NoError(t, err)
		e, _ := table.named("n1")
		known := &unanswered{Store: store}
		began := time.Now()
		silent, _, err := challenge(t.Context(), known, e, silence, 0)
		require.NoError(t, err)
		require.True(t, silent)
		require.EqualValues(t, timing.Challenges, known.commits.Load())
		require.GreaterOrEqual(t, time.Since(began), silence)
		require.Less(t, time.Since(began), silence+2*silence/timing.Challenges)
	})
}

// unanswered is a store whose first commit takes effect, and whose outcome is not known.
type unanswered struct {
	sqlstore.Store
	commits atomic.Int64
}

func (s *unanswered) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		err := b.BatchWrite.Commit(ctx)
		if s.commits.Add(1) == 1 && err == nil {
			return sqlstore.ErrUncertain
		}
		return err
	})
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
				silent, _, err := challenge(t.Context(), store, e, silence, timing.AnswerTrips*store.trip)
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
