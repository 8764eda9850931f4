package member

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestTransferNamesTheSuccessorAndSkipsTheOthers(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		members := map[string]*candidate{"a": g.join("a")}
		first := g.next()
		for _, name := range []string{"b", "c", "d", "e"} {
			members[name] = g.join(name)
			members[name].sees(members["a"])
		}
		for _, name := range []string{"d", "b", "a", "e"} {
			require.NoError(t, first.of.Transfer(t.Context(), members[name].Self()))
			require.Error(t, first.ctx.Err())
			second := g.next()
			require.Same(t, members[name], second.of)
			first = second
		}
		g.none()
		first.live(t)
	})
}

func TestASilentSuccessorIsReplaced(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		a := g.join("a")
		g.next()
		b, c := g.join("b"), g.join("c")
		b.sees(a)
		c.sees(a)
		c.freeze()
		began := time.Now()
		require.NoError(t, a.Transfer(t.Context(), c.Self()))
		b.sees(c)
		a.stop()
		require.Same(t, b, g.next().of)
		require.GreaterOrEqual(t, time.Since(began), timing.Answer, "the successor gets its chance")

		require.NoError(t, b.Transfer(t.Context(), Member{ID: 4711, Incarnation: 1}))
		require.Same(t, b, g.next().of, "nobody waits for one that is no member")
	})
}

func TestTransferOnlyByTheHolderAndOneAtATime(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		term := g.next()
		b, c := g.join("b"), g.join("c")
		b.sees(a)
		require.ErrorIs(t, b.Transfer(t.Context(), c.Self()), ErrNotHolder)
		require.NoError(t, a.Transfer(t.Context(), a.Self()))
		term.live(t)

		letGo := term.holds()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, a.Transfer(ctx, b.Self()), context.Canceled)
		term.ends(t)
		require.ErrorContains(t, a.Transfer(t.Context(), c.Self()), "a transfer is under way")
		require.Equal(t, a.id(), g.row().Holder, "not before lead has returned")
		letGo()
		require.Same(t, b, g.next().of, "the transfer goes on though nobody waits for it")
		require.ErrorIs(t, a.Transfer(t.Context(), b.Self()), ErrNotHolder)
	})
}

// TestTransferAfterTheLockWasLost: the lock is another's when lead returns.
func TestTransferAfterTheLockWasLost(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		term := g.next()
		letGo := term.holds()
		b, c := g.join("b"), g.join("c")
		result := make(chan error, 1)
		go func() { result <- a.Transfer(context.Background(), b.Self()) }()
		term.ends(t)
		g.swap(func(old lock) lock { return old.grantTo(c.id(), c.incarnation) })
		a.sees(a, c)
		letGo()
		require.ErrorIs(t, wait(t, result, "Transfer to return"), ErrNotHolder)
		require.Equal(t, c.id(), g.row().Holder)
		require.Same(t, c, g.next().of)
	})
}

// uncertainOnce returns a hook by which the first commit ends without an answer;
// applied or not.
func uncertainOnce(applied bool) func(context.Context, func() error) error {
	done := false
	return func(_ context.Context, commit func() error) error {
		if done {
			return commit()
		}
		done = true
		if applied {
			if err := commit(); err != nil {
				return err
			}
		}
		return sqlstore.ErrUncertain
	}
}

func TestUnknownOutcomesOfTheLockRowAreResolved(t *testing.T) {
	for _, applied := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, slow, newStore(t))
			a := g.join("a", func(c *candidate, _ *Config) { c.faults.onCommit(uncertainOnce(applied)) })
			require.Same(t, a, g.next().of)
			a.sees(a)
			g.none()
			b := g.join("b")
			b.sees(a)
			a.faults.onCommit(uncertainOnce(applied))
			require.NoError(t, a.Transfer(context.Background(), b.Self()))
			require.Same(t, b, g.next().of)
			g.none()
		})
	}
}

func TestALockTakenWithAnUnknownOutcomeIsReleasedOnStop(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		taken, resume := make(chan struct{}), make(chan struct{})
		first := true
		a := g.join("a", func(c *candidate, _ *Config) {
			c.faults.onCommit(func(ctx context.Context, commit func() error) error {
				if !first {
					return commit()
				}
				first = false
				err := commit()
				close(taken)
				<-ctx.Done() // Resign cuts it off
				<-resume
				return errors.Join(err, sqlstore.ErrUncertain)
			})
		})
		wait(t, taken, "the lock to be taken")
		require.Equal(t, a.id(), g.row().Holder)
		go func() {
			synctest.Wait()
			close(resume)
		}()
		a.stop()
		require.Zero(t, g.row().Holder)
		g.none()
	})
}

func TestResigningWaitsForLeadAndAnswersMeanwhile(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		a := g.join("a")
		term := g.next()
		letGo := term.holds()
		resigned := make(chan struct{})
		go func() {
			a.stop()
			close(resigned)
		}()
		term.ends(t)
		b := g.join("b")
		time.Sleep(3 * replaced)
		require.Equal(t, a.id(), g.row().Holder)
		g.none()
		letGo()
		wait(t, resigned, "Resign to return")
		require.NotEqual(t, a.id(), g.row().Holder)
		require.Same(t, b, g.next().of)
		a.sees(a, nil, b)
		require.Equal(t, b.id(), a.Holder(), "it still learns who leads")
	})
}

func TestResigningWhileTheDatabaseIsAway(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		a := g.join("a")
		g.next()
		a.freeze()
		began := time.Now()
		a.stop()
		require.LessOrEqual(t, time.Since(began), timing.ReleaseTimeout+timing.PollTimeout, "though the lock stays")
		a.await("the lock could not be released", 1)
		require.Equal(t, a.id(), g.row().Holder)

		// One that neither holds the lock nor may have taken it need not wait.
		c := g.join("c")
		c.faults.onPoll(func(ctx context.Context, _ func() ([][]byte, error)) ([][]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		began = time.Now()
		c.stop()
		require.Zero(t, time.Since(began))
	})
}

func TestALockThatCouldNotBeReleasedIsReleasedLater(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		g.next().quit <- errAway
		a.freeze()
		a.await("the lock could not be released", 1)
		g.none()
		a.faults.come()
		g.next().live(t) // in its turn, once it has stood back
		require.EqualValues(t, 3, g.row().Grant, "released in between")
	})
}

func TestPollNowPollsAtOnce(t *testing.T) {
	rare := Config{ElectionTimeout: timing.LongestAnswer, poll: 10 * time.Hour, fastPoll: time.Hour}
	elect(t, rare, func(t *testing.T, g *group) {
		a, b, _ := g.joinTwo()
		a.stop()
		b.PollNow()
		require.Same(t, b, g.next().of)
		b.PollNow() // nothing to a leader

		// A look under way may have read the row before: another follows it.
		c := g.join("c")
		c.sees(b)
		read, resume := make(chan struct{}), make(chan struct{})
		c.faults.onPoll(func(_ context.Context, get func() ([][]byte, error)) ([][]byte, error) {
			rows, err := get()
			c.faults.onPoll(nil)
			close(read)
			<-resume
			return rows, err
		})
		c.PollNow()
		wait(t, read, "a look")
		b.stop()
		c.PollNow()
		c.PollNow()
		close(resume)
		require.Same(t, c, g.next().of)
		c.stop()
		c.PollNow() // nothing to one that resigned
	})
}
