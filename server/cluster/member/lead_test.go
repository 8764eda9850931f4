package member

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// TestALeaderContinuesWhileTheDatabaseIsAway, for longer than an answer may take.
func TestALeaderContinuesWhileTheDatabaseIsAway(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		a, b, term := g.joinTwo()
		before, heartbeat := g.row(), g.heartbeat("a")
		for range 2 {
			a.freeze()
			b.freeze()
			time.Sleep(5 * replaced)
			term.live(t)
			b.faults.come() // and polls first: silence while it could not does not count
			time.Sleep(2 * timing.FastPoll)
			a.faults.come()
			time.Sleep(2 * replaced)
			term.live(t)
			g.none()
		}
		require.Equal(t, before.Grant, g.row().Grant)
		require.Greater(t, g.heartbeat("a"), heartbeat)
		require.Positive(t, testutil.ToFloat64(a.metrics.renewalFailures))
		require.Equal(t, 2, strings.Count(a.logs.String(), "the lock row cannot be read or written"),
			"an operator hears once of each outage")
		require.Equal(t, 2, strings.Count(a.logs.String(), "the lock row can be read and written again"))
	})
}

// TestDatabaseWithoutWritesDeposesNoLeader: the leader is the first to write again.
func TestDatabaseWithoutWritesDeposesNoLeader(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		store := &outages{Store: g.store}
		g.store = store
		_, b, term := g.joinTwo()
		store.commits.Store(true)
		time.Sleep(5 * replaced)
		store.commits.Store(false)
		time.Sleep(replaced)
		g.stays(b, term)
	})
}

// TestALostLockIsNotTakenBack: the row is another's by the time the leader's lead
// returns, and stays so.
func TestALostLockIsNotTakenBack(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		a := g.join("a")
		first := g.next()
		letGo := first.holds()
		g.swap(func(old lock) lock { return old.grantTo(0, 0) }) // another took it, and released it
		released := g.row()
		first.ends(t)
		time.Sleep(replaced)
		require.Equal(t, released, g.row())
		g.none()
		letGo()
		second := g.next() // by a grant of its own
		require.Same(t, a, second.of)
		require.Greater(t, g.row().Grant, released.Grant)
		a.sees(a, nil, a)
	})
}

func TestLeaderRewritesMissingLockRow(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		g.next().quit <- nil // so that the grant is not the first one
		term := g.next()
		grant := g.row().Grant
		require.Greater(t, grant, int64(1))
		b := g.store.BeginBatchWrite()
		b.Del(coder.LockKey())
		require.NoError(t, b.Commit(t.Context()))
		a.sees(a, nil, a, nil, a)
		require.Equal(t, a.id(), g.row().Holder)
		require.Equal(t, grant, g.row().Grant)
		term.live(t)
		g.none()
	})
}

func TestALeadThatFailsLetsAnotherLead(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a, b, first := g.joinTwo()
		first.quit <- errAway
		second := g.next()
		require.Same(t, b, second.of)
		require.Contains(t, a.logs.String(), "leading failed")
		second.quit <- nil
		g.next()
		b.stop()
		a.stop()
		require.NotContains(t, b.logs.String(), "leading failed")
	})
}

func TestARestartTakesItsOwnLockAtOnce(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		first := g.next()
		a.freeze() // as a process that is gone
		again := g.join("a")
		second := g.next()
		require.Same(t, again, second.of)
		first.live(t)
		again.sees(again)
		// The old one, if it lives after all, finds that it was replaced.
		a.faults.come()
		first.ends(t)
		<-a.Ended()
		time.Sleep(time.Second)
		g.none()
		a.stop()
		require.Equal(t, again.incarnation, g.row().Incarnation)
		second.live(t)
	})
}

// TestTheLockOfAProcessThatWasReplacedIsFree for all, not only for its next process.
func TestTheLockOfAProcessThatWasReplacedIsFree(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a, b, _ := g.joinTwo()
		a.freeze()
		_, err := Join(t.Context(), Config{Store: g.store, Name: "a", Force: true}) // and does not campaign
		require.NoError(t, err)
		require.Same(t, b, g.next().of)
		b.sees(nil, b)
	})
}

// TestTheLockOfAProcessThatStoppedIsFree, though it was not released.
func TestTheLockOfAProcessThatStoppedIsFree(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a, b, term := g.joinTwo()
		a.kill()
		require.ErrorIs(t, term.ctx.Err(), context.Canceled)
		a.stop() // returns, though it releases nothing
		require.Equal(t, a.id(), g.row().Holder)
		require.NoError(t, a.Leave(t.Context()))
		require.Same(t, b, g.next().of)
	})
}

// TestRemovedLeaderStopsLeading, and its lock is free.
func TestRemovedLeaderStopsLeading(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		for _, frozen := range []bool{false, true} {
			a, b, first := g.joinTwo()
			if frozen {
				a.freeze()
			}
			_, err := b.Remove(t.Context(), a.id())
			require.NoError(t, err)
			second := g.next()
			require.Same(t, b, second.of)
			a.faults.come()
			first.ends(t)
			<-a.Ended()
			b.stop()
			b.kill()
			require.NoError(t, b.Leave(t.Context()))
		}
	})
}

// TestAStopReleasesOnlyWhatThisProcessHolds: the lock is another process's, of
// the same member, which the one that stops has not seen.
func TestAStopReleasesOnlyWhatThisProcessHolds(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		g.next()
		a.freeze()
		again := g.join("a")
		second := g.next()
		a.faults.come()
		a.stop()
		require.Equal(t, again.incarnation, g.row().Incarnation)
		second.live(t)
	})
}

// TestALockTakenAndTransferredBackWasLost: the leader did not look meanwhile.
func TestALockTakenAndTransferredBackWasLost(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		first := g.next()
		letGo := first.holds()
		a.freeze()
		g.swap(func(old lock) lock { return old.grantTo(4711, 1) })
		g.swap(func(old lock) lock { return old.grantTo(a.id(), a.incarnation) })
		first.live(t)
		a.faults.come()
		first.ends(t)
		time.Sleep(time.Second)
		g.none()
		letGo()
		require.Same(t, a, g.next().of)
	})
}

// TestObservedReceivesEarlierHolder checks a process that campaigns after another one leads.
func TestObservedReceivesEarlierHolder(t *testing.T) {
	elect(t, slow, func(t *testing.T, g *group) {
		a := g.join("a")
		g.next()
		r := start(t, g.store, "late")
		late := run(t, r)
		defer late.kill()
		time.Sleep(time.Second)
		require.Equal(t, a.id(), late.Holder())
		observed := make(chan uint64, 10)
		late.Campaign(func(context.Context) error { return nil }, func(holder uint64) { observed <- holder })
		require.Equal(t, a.id(), wait(t, observed, "the holder"))
	})
}
