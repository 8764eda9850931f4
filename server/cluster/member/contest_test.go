package member

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// listen makes c hear what another member says of the lock, as a feed does, while the result is true.
func (c *candidate) listen(to *candidate) *atomic.Bool {
	connected := &atomic.Bool{}
	connected.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			select {
			case <-to.HeartbeatPeriod().Done():
			case <-ctx.Done():
			}
			if connected.Load() && to.KeepsLock() {
				c.RecordHeartbeat(to.id())
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-stopped
	})
	return connected
}

// heardLeader returns a leader, and a follower that hears it.
func heardLeader(g *group) (leads, follows *candidate, of *term, connected *atomic.Bool) {
	g.t.Helper()
	n1 := g.join("n1")
	of = g.next()
	n2 := g.join("n2")
	connected = n2.listen(n1)
	time.Sleep(time.Minute)
	return n1, n2, of, connected
}

// loses makes c notice that the leader's feed has ended, and that its address refuses connections.
func (c *candidate) loses(leader *candidate) {
	c.Refused(leader.id())
}

// results returns how many challenges of c were answered, and how many were not.
func (c *candidate) results() (alive, gone float64) {
	return testutil.ToFloat64(c.metrics.suspicions.WithLabelValues(leaderAlive)),
		testutil.ToFloat64(c.metrics.suspicions.WithLabelValues(leaderGone))
}

// polls counts how often c reads the lock row from now on.
func (c *candidate) polls() *atomic.Int64 {
	var n atomic.Int64
	c.faults.onPoll(func(_ context.Context, read func() ([][]byte, error)) ([][]byte, error) {
		n.Add(1)
		return read()
	})
	return &n
}

// TestIdleMembersWriteHeartbeatsOnly: members that hear the leader write nothing for liveness, nor does the leader.
func TestIdleMembersWriteHeartbeatsOnly(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		n1, _, leads, _ := heardLeader(g)
		row, before := g.row(), g.heartbeat("n1")+g.heartbeat("n2")
		time.Sleep(10 * time.Minute)
		g.stays(n1, leads)
		require.Equal(t, row, g.row())
		require.LessOrEqual(t, g.heartbeat("n1")+g.heartbeat("n2")-before, uint64(2*10*time.Minute/timing.MemberHeartbeat+2))
	})
}

// TestHowLongALeaderThatIsGoneIsWaitedFor, by what its follower knows.
func TestHowLongALeaderThatIsGoneIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		fed, refused bool
		want         time.Duration
	}{
		"refused":                 {true, true, timing.MissedPolls * timing.FastPoll},
		"refused, without a feed": {false, true, timing.Answer},
		"silent":                  {true, false, replaced},
	} {
		t.Run(name, func(t *testing.T) {
			elect(t, quick, func(t *testing.T, g *group) {
				n1, n2, first, connected := heardLeader(g)
				if !c.fed {
					n2 = g.join("n3")
					time.Sleep(2 * timing.FastPoll) // it knows who leads
				} else {
					<-n1.HeartbeatPeriod().Done()
					time.Sleep(time.Millisecond)
				}
				connected.Store(false)
				n1.freeze()
				began := time.Now()
				if c.refused {
					n2.loses(n1)
				}
				require.Same(t, n2, g.next().of)
				require.InDelta(t, c.want, time.Since(began), float64(timing.FastPoll))
				n2.sees(n1, n2)
				synctest.Wait() // it has counted the challenge, which it does after it leads
				_, gone := n2.results()
				require.EqualValues(t, 1, gone)
				m, _ := withID(list(t, n2.Registry), n1.id())
				require.False(t, m.Alive)
				first.live(t)
				n1.faults.come()
				first.ends(t)
			})
		})
	}
}

// TestALeaderAnswersWheneverItIsChallenged: at any time after its last poll; a follower that lost its feed waits for a
// short time, because the leader has noticed that, too.
func TestALeaderAnswersWheneverItIsChallenged(t *testing.T) {
	for after := range 10 {
		for _, fed := range []bool{true, false} {
			t.Run(fmt.Sprint(after, " fed=", fed), func(t *testing.T) {
				elect(t, quick, func(t *testing.T, g *group) {
					n1, n2, leads, connected := heardLeader(g)
					time.Sleep(time.Duration(after) * timing.Poll / 10)
					if fed {
						connected.Store(false)
						n1.FeedEnded()
						time.Sleep(10 * time.Millisecond) // it has polled once
					} else {
						n2 = g.join("n3")
					}
					n2.loses(n1)
					time.Sleep(2 * timing.Answer)
					g.stays(n1, leads)
					alive, gone := n2.results()
					require.EqualValues(t, 1, alive)
					require.Zero(t, gone)
				})
			})
		}
	}
}

// TestALeaderThatIsNeverHeardIsChallengedEachTenSeconds, keeps the lock, and is replaced once it is gone.
func TestALeaderThatIsNeverHeardIsChallengedEachTenSeconds(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		n1 := g.join("n1")
		leads := g.next()
		n2 := g.join("n2")
		time.Sleep(time.Minute)
		before := g.row()
		for range 100 {
			n2.Refused(n1.id())
			time.Sleep(timing.ChallengeAgain)
		}
		g.stays(n1, leads)
		require.Equal(t, before.Grant, g.row().Grant)
		require.InDelta(t, 2*100, g.row().sequence-before.sequence, 20, "a challenge, and an answer")
		require.Contains(t, n2.logs.String(), "it answers in the database and keeps the lock")
		n1.freeze()
		began := time.Now()
		require.Same(t, n2, g.next().of)
		require.LessOrEqual(t, time.Since(began), timing.ChallengeAgain+timing.Answer+timing.FastPoll)
	})
}

// TestAnAnswerThatComesFirstKeepsTheLock: the lock is about to be swapped.
func TestAnAnswerThatComesFirstKeepsTheLock(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		n1, n2, leads, _ := heardLeader(g)
		n1.freeze()
		var tried atomic.Bool
		commits := 0
		n2.faults.onCommit(func(_ context.Context, commit func() error) error {
			if commits++; commits == 2 {
				tried.Store(true)
				n1.faults.come()
				for g.row().Challenge != 0 {
					time.Sleep(time.Millisecond)
				}
			}
			return commit()
		})
		n2.loses(n1)
		time.Sleep(time.Second)
		require.True(t, tried.Load())
		n2.faults.onCommit(nil)
		g.stays(n2, leads)
	})
}

// TestWhatIsKnownOfAProcessDoesNotApplyToTheNextOne.
func TestWhatIsKnownOfAProcessDoesNotApplyToTheNextOne(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		n1, n2, _, connected := heardLeader(g)
		connected.Store(false)
		n1.freeze()
		again := g.join("n1")
		term := g.next()
		require.Same(t, again, term.of)
		for _, other := range []uint64{0, n2.id(), 4711} {
			n2.Refused(other)
			g.stays(n2, term)
		}
		time.Sleep(time.Minute)
		again.freeze()
		n2.Refused(again.id())
		began := time.Now()
		require.Same(t, n2, g.next().of)
		require.GreaterOrEqual(t, time.Since(began), timing.Answer, "it had no feed of this process")
	})
}

// TestEvidenceBeginsTheWaitAnew: a leader that was challenged, because its feed is silent, polls often only once it
// knows of the feed's end.
func TestEvidenceBeginsTheWaitAnew(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		n1, n2, leads, connected := heardLeader(g)
		n1.freeze()
		connected.Store(false)
		time.Sleep(10 * time.Second) // the challenge is there
		require.NotZero(t, g.row().Challenge)
		n2.loses(n1)
		time.Sleep(2 * timing.FastPoll)
		n1.faults.come()
		n1.FeedEnded()
		time.Sleep(timing.Poll)
		g.stays(n2, leads)
	})
}

// TestTimeWithoutTheDatabaseDoesNotCount: the challenge was written before the database went away.
func TestTimeWithoutTheDatabaseDoesNotCount(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		n1, n2, leads, connected := heardLeader(g)
		connected.Store(false)
		n1.freeze()
		for g.row().Challenge == 0 {
			time.Sleep(time.Millisecond)
		}
		n2.freeze()
		time.Sleep(time.Minute)
		n2.faults.come()
		time.Sleep(timing.FastPoll)
		n1.faults.come()
		time.Sleep(replaced)
		g.stays(n2, leads)
	})
}

// TestALeaderWithoutTheDatabaseSaysNothing: others hear its feed, and not that it keeps the lock.
func TestALeaderWithoutTheDatabaseSaysNothing(t *testing.T) {
	for _, what := range []string{"reads", "commits", "commits of clients"} {
		t.Run(what, func(t *testing.T) {
			elect(t, quick, func(t *testing.T, g *group) {
				var store *outages
				n1 := g.join("n1", func(_ *candidate, cfg *Config) {
					store = &outages{Store: cfg.Store}
					cfg.Store = store
				})
				g.next()
				n2 := g.join("n2")
				n2.listen(n1)
				time.Sleep(time.Minute)
				limit := replaced + timing.Poll
				switch what {
				case "reads":
					n1.freeze()
					limit += timing.Poll
				case "commits":
					store.commits.Store(true)
					limit += timing.MemberHeartbeat
				default:
					store.commits.Store(true)
					n1.CommitFailed()
				}
				began := time.Now()
				<-n1.HeartbeatPeriod().Done() // its feeds have heartbeats all the same
				require.LessOrEqual(t, time.Since(began), timing.FeedHeartbeat)
				require.Same(t, n2, g.next().of)
				require.LessOrEqual(t, time.Since(began), limit)
				store.commits.Store(false)
			})
		})
	}
}

// TestHowOftenMembersPoll: a leader, and a follower that hears it, rarely; after the end of a feed both poll often.
func TestHowOftenMembersPoll(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		polls := func(c *candidate, interval time.Duration) {
			t.Helper()
			n := c.polls()
			time.Sleep(timing.FastPolls / 2)
			require.InEpsilon(t, int64(timing.FastPolls/2/interval), n.Load(), 0.1)
		}
		n1, n2, _, connected := heardLeader(g)
		const early = timing.Poll - timing.Poll/timing.Lead
		polls(n1, early)
		polls(n2, early)
		n1.FeedEnded()
		polls(n1, timing.FastPoll)
		time.Sleep(timing.FastPolls / 2)
		polls(n1, early)

		// Messages of a feed come as often as commits.
		n := n2.polls()
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
			n2.RecordHeartbeat(n1.id())
		}
		require.LessOrEqual(t, n.Load(), int64(time.Minute/(timing.Poll/2)))
		connected.Store(false)
		n2.PollNow()
		polls(n2, timing.FastPoll)
	})
}

// TestHeartbeatsOfFeedsComeWithPolls: a process that leads wakes up once for both, and its followers with it, whenever
// they polled first.
func TestHeartbeatsOfFeedsComeWithPolls(t *testing.T) {
	const early = timing.Poll - timing.Poll/timing.Lead
	for after := range 10 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			elect(t, quick, func(t *testing.T, g *group) {
				n1 := g.join("n1")
				g.next()
				time.Sleep(time.Minute + time.Duration(after)*early/10)
				n2 := g.join("n2")
				n2.listen(n1)
				time.Sleep(3 * time.Minute)
				n := n2.polls()
				beats := 0
				for began := time.Now(); time.Since(began) < 2*time.Minute; beats++ {
					period := n1.HeartbeatPeriod()
					require.Same(t, period, n1.HeartbeatPeriod(), "all feeds have one")
					<-period.Done()
					require.True(t, n1.KeepsLock())
					require.Equal(t, time.Since(n1.began), time.Duration(n1.polledAt.Load()))
					time.Sleep(time.Millisecond)
					require.Equal(t, time.Since(n2.began)-time.Millisecond, time.Duration(n2.polledAt.Load()),
						"the follower polls when it is woken")
				}
				require.InEpsilon(t, int64(2*time.Minute/early), beats, 0.05)
				require.InEpsilon(t, beats, n.Load(), 0.05, "and at no other time")
			})
		})
	}
}

// TestPollsThatFailOnlyDelayATakeover: one in fourteen, which is less than the time that an answer has.
func TestPollsThatFailOnlyDelayATakeover(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		n1, n2, _, connected := heardLeader(g)
		polls := 0
		n2.faults.onPoll(func(_ context.Context, read func() ([][]byte, error)) ([][]byte, error) {
			if polls++; polls%14 == 0 {
				return nil, errAway
			}
			return read()
		})
		connected.Store(false)
		n1.freeze()
		began := time.Now()
		require.Same(t, n2, g.next().of)
		require.LessOrEqual(t, time.Since(began), 2*replaced)
	})
}

// TestAPollThatTimesOutSaysHowFarTheDatabaseIs: it has become slow, and the leader is gone.
func TestAPollThatTimesOutSaysHowFarTheDatabaseIs(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		n1, n2, _, connected := heardLeader(g)
		n2.faults.onPoll(func(ctx context.Context, read func() ([][]byte, error)) ([][]byte, error) {
			select {
			case <-time.After(timing.PollTimeout * 6 / 5):
				return read()
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		connected.Store(false)
		n1.freeze()
		began := time.Now()
		require.Same(t, n2, g.next().of)
		require.LessOrEqual(t, time.Since(began), time.Minute)
	})
}

// TestAnAnswerSaysNothingOfAProcessThatEndsAfterIt, as its address says that it has.
func TestAnAnswerSaysNothingOfAProcessThatEndsAfterIt(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		n1, n2, _, connected := heardLeader(g)
		connected.Store(false)
		for alive, _ := n2.results(); alive == 0; alive, _ = n2.results() {
			time.Sleep(timing.FastPoll)
		}
		n1.freeze()
		n2.loses(n1)
		began := time.Now()
		require.Same(t, n2, g.next().of)
		require.LessOrEqual(t, time.Since(began), timing.Answer+2*timing.FastPoll)
	})
}

// TestHowLongAChallengeIsUnanswered: time in which the holder may have been without the database, as this process was,
// does not count.
func TestHowLongAChallengeIsUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			p pending
			l lock
		)
		l.Challenge = 7
		poll := func(after time.Duration) time.Duration {
			time.Sleep(after)
			p.observe(l, timing.Answer, time.Now())
			return p.waited
		}
		require.Zero(t, poll(time.Minute), "the first poll that finds it")
		want := timing.FastPoll
		require.Equal(t, want, poll(timing.FastPoll))
		want += timing.Answer / 2
		require.Equal(t, want, poll(time.Minute), "the process was paused")
		const holderPoll = timing.Answer / timing.MissedPolls
		time.Sleep(time.Minute)
		p.missed(holderPoll)
		want += timing.FastPoll - holderPoll
		require.Equal(t, want, poll(timing.FastPoll), "a poll failed")
	})
}

func TestRoundTripsInRowsAreBounded(t *testing.T) {
	require.Equal(t, timing.LongestPause, Member{RoundTrip: 4e15}.roundTrip())
	require.Zero(t, Member{RoundTrip: -1}.roundTrip())
	require.Equal(t, 3*time.Millisecond, Member{RoundTrip: 3000}.roundTrip())
}
