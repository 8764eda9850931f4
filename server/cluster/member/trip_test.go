package member

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// far is a store whose calls take a round trip, and as many more as a connection takes for each commit if connects is
// set. With random, each round trip takes up to that much longer.
type far struct {
	sqlstore.Store
	trip      time.Duration
	random    time.Duration
	connects  atomic.Bool
	commits   atomic.Int64
	conflicts atomic.Int64
}

// after waits for d, calls do, and waits for the answer.
func (s *far) after(ctx context.Context, d time.Duration, do func() error) error {
	var longer time.Duration
	if s.random > 0 {
		longer = rand.N(s.random)
	}
	if err := retry.Sleep(ctx, d+longer/2); err != nil {
		return err
	}
	err := do()
	return errors.Join(err, retry.Sleep(ctx, s.trip-s.trip/2+longer/2))
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
		log, store := &eventually.Log{}, &far{Store: memstore.New(), trip: 60 * time.Millisecond}
		require.Greater(t, (timing.ConnectTrips-2)*store.trip, timing.WriteTimeout)
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

// TestBoundsFollowTheRoundTrips: those of statements the shortest one, that of an answer the longest one.
func TestBoundsFollowTheRoundTrips(t *testing.T) {
	var m trips
	require.Equal(t, timing.PollTimeout, m.bound(timing.PollTimeout), "nothing was measured")
	m.observe(time.Hour)
	require.Equal(t, timing.FarTimeout, m.bound(timing.PollTimeout), "there is a limit")
	m.observe(50 * time.Millisecond)
	m.observe(time.Minute)
	require.Equal(t, timing.ConnectTrips*50*time.Millisecond, m.bound(timing.PollTimeout))
	require.Equal(t, timing.LongestPause, m.pause(0))
	for range len(m.recent) {
		m.observe(time.Millisecond)
	}
	require.Equal(t, timing.PollTimeout, m.bound(timing.PollTimeout), "the floor is what is used near the database")
	require.Equal(t, timing.AnswerTrips*9*time.Millisecond, m.pause(9*time.Millisecond), "the longer one counts")
	m.observe(11 * time.Millisecond)
	require.Equal(t, timing.AnswerTrips*9*time.Millisecond, m.pause(9*time.Millisecond),
		"one alone says nothing of the next")
	m.observe(12 * time.Millisecond)
	require.Equal(t, timing.AnswerTrips*11*time.Millisecond, m.pause(9*time.Millisecond))
}

// TestLeaderAnswersChallengesOfAnIrregularNetwork: the shortest round trips say nothing of the next one.
func TestLeaderAnswersChallengesOfAnIrregularNetwork(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		irregular := func(_ *candidate, c *Config) {
			c.Store = &far{Store: c.Store, trip: 5 * time.Millisecond, random: 400 * time.Millisecond}
		}
		leads := g.join("n1", irregular)
		term := g.next()
		asks := g.join("n2", irregular)
		time.Sleep(time.Minute)
		for range 200 {
			asks.RecordHeartbeat(leads.id())
			time.Sleep(rand.N(timing.Poll))
			leads.FeedEnded()
			asks.Refused(leads.id())
			time.Sleep(4 * time.Second)
			g.stays(leads, term)
		}
	})
}

// roundTrips are distances to a database.
var roundTrips = []time.Duration{
	time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
}

// TestLeaderAnswersChallengesOfAFarDatabase, and if only the leader is far away. One that is gone is found out in few
// round trips.
func TestLeaderAnswersChallengesOfAFarDatabase(t *testing.T) {
	for _, trip := range roundTrips {
		for _, near := range []bool{false, true} {
			t.Run(fmt.Sprint(trip, " near=", near), func(t *testing.T) {
				elect(t, quick, func(t *testing.T, g *group) {
					leads := g.join("n1", func(_ *candidate, c *Config) { c.Store = &far{Store: c.Store, trip: trip} })
					term := g.next()
					asks := g.join("n2", func(_ *candidate, c *Config) {
						if !near {
							c.Store = &far{Store: c.Store, trip: trip}
						}
					})
					time.Sleep(time.Minute) // the leader's row says how far away it is
					for n := range 40 {     // at other times between two polls of the leader
						asks.RecordHeartbeat(leads.id())
						time.Sleep(time.Duration(n) * 13 * time.Millisecond)
						leads.FeedEnded()
						asks.Refused(leads.id())
						time.Sleep(2 * time.Second)
						g.stays(leads, term)
					}
					asks.RecordHeartbeat(leads.id())
					leads.freeze()
					began := time.Now()
					asks.Refused(leads.id())
					require.Same(t, asks, g.next().of)
					const wait = timing.MissedPolls * timing.FastPoll
					require.GreaterOrEqual(t, time.Since(began), wait)
					require.LessOrEqual(t, time.Since(began), wait+timing.FastPoll+(timing.AnswerTrips+6)*trip)
				})
			})
		}
	}
}

// TestOneSlowStatementDelaysNoFailover: it says nothing of the next one.
func TestOneSlowStatementDelaysNoFailover(t *testing.T) {
	for _, who := range []string{"follower", "leader"} {
		for _, after := range []time.Duration{time.Second, 20 * time.Second} {
			t.Run(fmt.Sprint(who, after), func(t *testing.T) {
				elect(t, quick, func(t *testing.T, g *group) {
					n1, n2, _, connected := heardLeader(g)
					slow := map[string]*candidate{"follower": n2, "leader": n1}[who]
					var once atomic.Bool
					slow.faults.onPoll(func(_ context.Context, read func() ([][]byte, error)) ([][]byte, error) {
						if !once.Swap(true) {
							time.Sleep(timing.LongestPause / timing.AnswerTrips)
						}
						return read()
					})
					time.Sleep(timing.Poll)
					slow.CommitFailed() // its row gets the round trip at once
					time.Sleep(after)
					connected.Store(false)
					n1.freeze()
					began := time.Now()
					n2.loses(n1)
					require.Same(t, n2, g.next().of)
					require.LessOrEqual(t, time.Since(began), timing.MissedPolls*timing.FastPoll+timing.FastPoll)
				})
			})
		}
	}
}
