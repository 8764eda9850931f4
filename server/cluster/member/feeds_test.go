package member

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// calmLeader returns a leader that looks for challenges rarely, and a follower that has a feed of it.
func calmLeader(t *testing.T, g *group) (leads, follows *candidate, of *term) {
	t.Helper()
	n1 := g.join("n1")
	of = g.next()
	n2 := g.join("n2")
	n2.Fed(n1.Hurries())
	n2.listen(n1)
	time.Sleep(time.Minute)
	require.Equal(t, timing.CalmAnswer, g.member("n1").answers())
	return n1, n2, of
}

// suspects makes c suspect the leader, whose URLs refuse connections, and reports whether it takes the leader for
// gone, and after which time.
func (c *candidate) suspects(leader *candidate) (gone bool, after time.Duration) {
	c.t.Helper()
	began := time.Now()
	gone, err := c.Suspect(c.t.Context(), leader.id(), timing.DeathSilence)
	require.NoError(c.t, err)
	return gone, time.Since(began)
}

// TestAFollowerFindsADeadLeaderSoon: it had a feed, so that a leader that runs would look often by now.
func TestAFollowerFindsADeadLeaderSoon(t *testing.T) {
	elect(t, hearing, func(t *testing.T, g *group) {
		n1, n2, _ := calmLeader(t, g)
		n1.freeze()
		n2.Unheard(n1.id())
		gone, after := n2.suspects(n1)
		require.True(t, gone)
		require.LessOrEqual(t, after, timing.MissedLongAnswers*timing.Answer+timing.Answer)
		require.Same(t, n2, g.next().of)
	})
}

// TestACalmLeaderAnswersAFollowerThatLostItsFeed: a challenge comes at any time after its last look.
func TestACalmLeaderAnswersAFollowerThatLostItsFeed(t *testing.T) {
	for after := range 10 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			elect(t, hearing, func(t *testing.T, g *group) {
				n1, n2, leads := calmLeader(t, g)
				time.Sleep(time.Duration(after) * timing.CalmAnswer / 10)
				n1.FeedEnded()
				n2.Unheard(n1.id())
				time.Sleep(10 * time.Millisecond) // it has looked once
				gone, _ := n2.suspects(n1)
				require.False(t, gone)
				g.stays(n1, leads)
			})
		})
	}
}

// TestACalmLeaderAnswersAMemberWithoutAFeed: such as one that is new, which waits longer because the leader does not
// know that it may be challenged; or one that has not heard the leader for a while, which the leader has forgotten.
func TestACalmLeaderAnswersAMemberWithoutAFeed(t *testing.T) {
	for after := range 10 {
		for _, which := range []string{"new", "not heard for long"} {
			t.Run(fmt.Sprint(which, " ", after), func(t *testing.T) {
				elect(t, hearing, func(t *testing.T, g *group) {
					n1, n2, leads := calmLeader(t, g)
					time.Sleep(time.Duration(after) * timing.CalmAnswer / 10)
					if which == "new" {
						n2 = g.join("n3")
					} else {
						n2.fed.Load().last.Add(-int64(timing.FollowerHurries))
					}
					gone, _ := n2.suspects(n1)
					require.False(t, gone)
					g.stays(n1, leads)
				})
			})
		}
	}
}

// TestTheFeedOfAnotherProcessSaysNothing: the member was started again, and the follower has no feed yet.
func TestTheFeedOfAnotherProcessSaysNothing(t *testing.T) {
	elect(t, hearing, func(t *testing.T, g *group) {
		n1, n2, _ := calmLeader(t, g)
		incarnation, answers := n1.Hurries()
		n2.Fed(incarnation+1, answers)
		n1.freeze()
		_, after := n2.suspects(n1)
		require.GreaterOrEqual(t, after, timing.MissedLongAnswers*timing.CalmAnswer)
	})
}

// TestFeedsBeatWithTheGlances: a process that leads wakes up once for both, and its followers with it, whenever they
// looked first.
func TestFeedsBeatWithTheGlances(t *testing.T) {
	const early = timing.CalmAnswer - timing.CalmAnswer/timing.Lead
	for after := range 10 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			elect(t, hearing, func(t *testing.T, g *group) {
				n1 := g.join("n1")
				g.next()
				time.Sleep(time.Minute) // it is calm
				n1.FeedEnded()          // and looks for a follower's challenges, the first one now
				time.Sleep(time.Duration(after) * early / 10)
				n2 := g.join("n2")
				ended := make(chan struct{})
				beats := 0
				end := time.Now().Add(5 * time.Minute)
				start := end.Add(-2 * time.Minute)
				var last time.Duration
				go func() {
					defer close(ended)
					for time.Now().Before(end) {
						beat := n1.Beat()
						require.Same(t, beat, n1.Beat(), "all feeds have one")
						<-beat.Done()
						require.True(t, n1.KeepsLock())
						now := time.Now()
						n2.Heard(n1.id())
						if time.Now().After(start) {
							beats++
							at := time.Duration(n1.glancedAt.Load())
							require.NotEqual(t, last, at, "a glance before each heartbeat")
							require.Equal(t, now.Sub(n1.began), at)
							last = at
							time.Sleep(time.Millisecond)
							require.Equal(t, now.Sub(n2.began), time.Duration(n2.glancedAt.Load()), "the follower looks when it is woken")
						}
					}
				}()
				time.Sleep(time.Until(start))
				n := n2.glances()
				time.Sleep(time.Until(end))
				<-ended
				require.InEpsilon(t, int64(end.Sub(start)/early), beats, 0.05)
				require.InEpsilon(t, beats, n.Load(), 0.05, "and at no other time")
			})
		})
	}
}

// TestALeaderWithoutTheDatabaseBeats: its followers hear that it runs.
func TestALeaderWithoutTheDatabaseBeats(t *testing.T) {
	elect(t, hearing, func(t *testing.T, g *group) {
		n1, _, _ := calmLeader(t, g)
		n1.freeze()
		<-n1.Beat().Done()
		began := time.Now()
		<-n1.Beat().Done()
		require.LessOrEqual(t, time.Since(began), timing.FeedHeartbeat)
		n1.faults.come()
	})
}

// TestACalmFollowerLooksOftenOnceTheLeaderIsSilent: its feed has not ended, and brings nothing.
func TestACalmFollowerLooksOftenOnceTheLeaderIsSilent(t *testing.T) {
	elect(t, hearing, func(t *testing.T, g *group) {
		n1 := g.join("n1")
		g.next()
		n2 := g.join("n2")
		connected := n2.listen(n1)
		time.Sleep(time.Minute)
		<-n1.Beat().Done()
		time.Sleep(time.Millisecond)
		connected.Store(false)
		time.Sleep(n2.cfg.hearsFor() - 2*time.Millisecond)
		n := n2.glances()
		time.Sleep(2*timing.Answer + timing.Answer/2)
		require.GreaterOrEqual(t, n.Load(), int64(2))
	})
}

// TestAMemberThatHearsEachCommitLooksRarely: messages of a feed come as often as commits.
func TestAMemberThatHearsEachCommitLooksRarely(t *testing.T) {
	elect(t, hearing, func(t *testing.T, g *group) {
		n1, n2, _ := calmLeader(t, g)
		n := n2.glances()
		began := time.Now()
		for time.Since(began) < time.Minute {
			n2.Heard(n1.id())
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, n.Load(), int64(time.Minute/(timing.CalmAnswer/2)))
	})
}

// TestACalmLeaderThatIsChallengedLateKeepsTheLock: a follower that hears nothing could not write the challenge earlier.
// The leader has two looks to find it, and one of them fails.
func TestACalmLeaderThatIsChallengedLateKeepsTheLock(t *testing.T) {
	for after := range 15 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			elect(t, hearing, func(t *testing.T, g *group) {
				n1 := g.join("n1")
				leads := g.next()
				var store *outages
				n2 := g.join("n2", func(_ *candidate, cfg *Config) {
					store = &outages{Store: cfg.Store}
					cfg.Store = store
				})
				connected := n2.listen(n1)
				time.Sleep(time.Minute)
				require.Equal(t, timing.CalmAnswer, g.member("n1").answers())
				connected.Store(false)
				store.commits.Store(true)
				var looks atomic.Int64
				n1.faults.onGlance(func(_ context.Context, read func() ([][]byte, error)) ([][]byte, error) {
					if looks.Add(1)%2 == 0 {
						return nil, errAway
					}
					return read()
				})
				time.Sleep(timing.Lease/2 + time.Duration(after)*timing.Answer)
				store.commits.Store(false)
				time.Sleep(timing.Lease)
				g.stays(n2, leads)
			})
		})
	}
}

// TestACalmMemberSeesThatAnotherOneIsGone within the time that heartbeats may be missing.
func TestACalmMemberSeesThatAnotherOneIsGone(t *testing.T) {
	elect(t, hearing, func(t *testing.T, g *group) {
		n1, n2, _ := calmLeader(t, g)
		gone := g.join("n3")
		gone.listen(n1)
		time.Sleep(5 * timing.MemberHeartbeat)
		for before := g.heartbeat("n3"); g.heartbeat("n3") == before; {
			time.Sleep(timing.Answer)
		}
		gone.freeze()
		time.Sleep(timing.MissedHeartbeats*timing.MemberHeartbeat + 2*timing.CalmMemberLook)
		for _, c := range []*candidate{n1, n2} {
			m, _ := withID(c.Cached(), gone.id())
			require.False(t, m.Alive, "%s counts it as alive", c.cfg.Name)
			other, _ := withID(c.Cached(), n2.id())
			require.True(t, other.Alive)
		}
	})
}
