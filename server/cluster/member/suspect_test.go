package member

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSuspectedLeaderThatIsSilentIsReplacedAtOnce(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		first := g.next()
		b := g.join("b")
		b.sees(a)
		a.freeze()
		require.True(t, b.suspect(a))
		second := g.next()
		require.Same(t, b, second.of)
		b.sees(nil, b)
		first.live(t)
		a.faults.come()
		first.ends(t)
	})
}

// A heartbeat that comes before the lock is swapped keeps the lock.
func TestHeartbeatEndsASuspicion(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		term := g.next()
		b := g.join("b")
		b.sees(a)
		a.freeze()
		tried := false
		b.faults.onCommit(func(_ context.Context, commit func() error) error {
			tried = true
			a.faults.come()
			for before := g.heartbeat("a"); g.heartbeat("a") == before; {
				time.Sleep(time.Millisecond)
			}
			return commit()
		})
		require.True(t, b.suspect(a))
		b.sees(nil, a)
		require.True(t, tried)
		b.faults.onCommit(nil)
		g.stays(b, term)
	})
}

func TestSuspicionDoesNotApplyToTheNextProcess(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		g.next()
		b := g.join("b")
		b.sees(a)
		a.freeze()
		table, err := readTable(t.Context(), g.store)
		require.NoError(t, err)
		old, _ := table.named("a")
		again := g.join("a")
		term := g.next()
		require.Same(t, again, term.of)
		b.view.condemn(old) // it was silent, but another one runs by now
		g.stays(b, term)
		for _, other := range []uint64{0, b.id(), 4711} {
			gone, err := b.Suspect(t.Context(), other, 40*time.Millisecond)
			require.NoError(t, err)
			require.False(t, gone)
			g.stays(b, term)
		}
		again.freeze()
		require.True(t, b.suspect(again))
		require.Same(t, b, g.next().of)
	})
}

func TestSuspectedHolderIsReplacedOnceTheLockIsRead(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		g.next()
		a.freeze()
		b := g.join("b", func(c *candidate, _ *Config) {
			c.faults.onGlance(func(context.Context, func() ([][]byte, error)) ([][]byte, error) { return nil, errAway })
		})
		b.await("the lock row cannot be read", 1)
		require.False(t, b.suspect(a), "b does not know that it holds the lock")
		g.none()
		b.faults.come()
		require.Same(t, b, g.next().of)
	})
}

// A suspicion does not take the lock from a process that answers challenges.
func TestAnsweredChallengeKeepsTheLock(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		term := g.next()
		b := g.join("b")
		b.sees(a)
		for range 3 {
			require.False(t, b.suspect(a))
			g.stays(b, term)
		}
		a.freeze()
		require.True(t, b.suspect(a))
		require.Same(t, b, g.next().of)
		require.False(t, b.suspect(b), "b leads, and answers")
	})
}
