package member

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

var hearing = Config{HearsLeader: true}

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
			case <-to.Beat().Done():
			case <-ctx.Done():
			}
			if connected.Load() && to.KeepsLock() {
				c.Heard(to.id())
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-stopped
	})
	return connected
}

// TestAQuietLeaderIsHeard: it writes rarely, and keeps the lock.
func TestAQuietLeaderIsHeard(t *testing.T) {
	elect(t, hearing, func(t *testing.T, g *group) {
		n1 := g.join("n1")
		leads := g.next()
		n2 := g.join("n2")
		connected := n2.listen(n1)
		time.Sleep(timing.Unheard)
		before := g.heartbeat("n1") + g.heartbeat("n2")
		time.Sleep(10 * time.Minute)
		g.stays(n1, leads)
		// As many as are allowed of three members.
		require.LessOrEqual(t, g.heartbeat("n1")+g.heartbeat("n2")-before, uint64(10*time.Minute/(5*time.Second)))

		// Its process ends: nobody hears it, and it answers no challenge.
		connected.Store(false)
		n1.freeze()
		began := time.Now()
		require.Same(t, n2, g.next().of)
		require.LessOrEqual(t, time.Since(began), timing.Lease+4*timing.Answer)
		require.GreaterOrEqual(t, time.Since(began), timing.Lease-timing.Answer)
	})
}

// glances counts how often c reads the lock row from now on.
func (c *candidate) glances() *atomic.Int64 {
	var n atomic.Int64
	c.faults.onGlance(func(_ context.Context, read func() ([][]byte, error)) ([][]byte, error) {
		n.Add(1)
		return read()
	})
	return &n
}

// TestAMemberThatHearsLooksRarely, and one that leads; one whose follower lost its feed looks often.
func TestAMemberThatHearsLooksRarely(t *testing.T) {
	elect(t, hearing, func(t *testing.T, g *group) {
		glances := func(c *candidate, interval time.Duration) {
			t.Helper()
			time.Sleep(timing.QuietHeartbeat)
			n := c.glances()
			time.Sleep(time.Minute)
			require.InEpsilon(t, int64(time.Minute/interval), n.Load(), 0.1)
		}
		n1 := g.join("n1")
		g.next()
		glances(n1, timing.CalmAnswer)
		n2 := g.join("n2")
		connected := n2.listen(n1)
		const early = timing.CalmAnswer - timing.CalmAnswer/timing.Lead
		glances(n1, early)
		glances(n2, early)
		require.Equal(t, timing.CalmAnswer, g.member("n1").answers())

		// A feed of it ends, and for a while it looks often.
		at := time.Now()
		n := n1.glances()
		n1.FeedEnded()
		time.Sleep(timing.FollowerLost - time.Millisecond)
		require.InEpsilon(t, int64(time.Since(at)/timing.Answer), n.Load(), 0.1)
		glances(n1, early)

		// It hears no more, and looks at once.
		n = n2.glances()
		connected.Store(false)
		n2.Unheard(n1.id())
		time.Sleep(2*timing.Answer + timing.Answer/2)
		require.GreaterOrEqual(t, n.Load(), int64(3))
	})
}

// TestAQuietLeaderIsReplacedInTime: it has no follower, and answers challenges later.
func TestAQuietLeaderIsReplacedInTime(t *testing.T) {
	elect(t, hearing, func(t *testing.T, g *group) {
		n1 := g.join("n1")
		g.next()
		time.Sleep(time.Minute)
		n1.freeze()
		time.Sleep(timing.CalmAnswer)
		n2 := g.join("n2")
		began := time.Now()
		require.Same(t, n2, g.next().of)
		require.LessOrEqual(t, time.Since(began), timing.Lease+2*timing.Answer)

		n2.freeze()
		began = time.Now()
		cfg := n2.cfg
		cfg.Store, cfg.Force = g.store, false
		_, err := Join(t.Context(), cfg)
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
	})
}

// TestALeaderThatIsNotHeardIsChallenged: it keeps the lock by answers, and then by frequent heartbeats.
func TestALeaderThatIsNotHeardIsChallenged(t *testing.T) {
	elect(t, hearing, func(t *testing.T, g *group) {
		n1 := g.join("n1")
		leads := g.next()
		g.join("n2")
		time.Sleep(timing.Lease)
		before := g.heartbeat("n1")
		time.Sleep(timing.Unheard / 2)
		require.Greater(t, g.heartbeat("n1")-before, uint64(timing.Unheard/2/timing.RetryPeriod/2))
		time.Sleep(10 * timing.Unheard)
		g.stays(n1, leads)
	})
}

// TestAMemberThatDoesNotHearGetsHeartbeats.
func TestAMemberThatDoesNotHearGetsHeartbeats(t *testing.T) {
	elect(t, hearing, func(t *testing.T, g *group) {
		n1 := g.join("n1")
		leads := g.next()
		n2 := g.join("n2", func(_ *candidate, cfg *Config) { cfg.HearsLeader = false })
		require.Zero(t, n1.challenged)
		time.Sleep(timing.Unheard)
		before := g.heartbeat("n1")
		time.Sleep(timing.Unheard)
		require.Greater(t, g.heartbeat("n1")-before, uint64(timing.Unheard/timing.RetryPeriod/2))
		require.Zero(t, n1.challenged, "it need not be challenged for that")
		n2.stop()
		require.NoError(t, n2.Leave(t.Context()))
		n2.kill()
		time.Sleep(timing.MemberLook)
		before = g.heartbeat("n1")
		time.Sleep(timing.Unheard)
		require.LessOrEqual(t, g.heartbeat("n1")-before, uint64(timing.Unheard/timing.QuietHeartbeat+1))
		g.stays(n1, leads)
	})
}

// TestALeaderWithoutTheDatabaseSaysNothing: others hear its feed, and not that it keeps the lock.
func TestALeaderWithoutTheDatabaseSaysNothing(t *testing.T) {
	for _, what := range []string{"reads", "commits"} {
		t.Run(what, func(t *testing.T) {
			elect(t, hearing, func(t *testing.T, g *group) {
				var store *outages
				n1 := g.join("n1", func(_ *candidate, cfg *Config) {
					store = &outages{Store: cfg.Store}
					cfg.Store = store
				})
				g.next()
				n2 := g.join("n2")
				n2.listen(n1)
				time.Sleep(time.Minute)
				if what == "reads" {
					n1.freeze()
				} else {
					store.commits.Store(true)
				}
				began := time.Now()
				require.Same(t, n2, g.next().of)
				require.LessOrEqual(t, time.Since(began), timing.QuietHeartbeat+timing.Lease+timing.RenewDeadline)
				store.commits.Store(false)
			})
		})
	}
}
