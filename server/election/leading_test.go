package election

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestALeaderGoesOnWhileRenewalsFailAndNobodyTakesTheLock(t *testing.T) {
	t.Parallel()
	g := newGroup(t, quick)
	store := newStore(t)
	registry := prometheus.NewRegistry()
	a := g.join(store, "a", func(c *Config) { c.Registerer = registry })
	term := g.next()
	a.store.leave()
	a.logs.await(t, "Failed to renew lease", 1)                 // client-go has given up,
	a.logs.await(t, "Attempting to acquire leader lease", 2)    // and started anew,
	a.logs.await(t, "Error retrieving lease lock", 10)          // which fails as well,
	require.Len(t, a.logs.find("cannot be read or written"), 1) // of which an operator hears once
	require.Positive(t, testutil.ToFloat64(a.metrics.renewalFailures))
	term.live(t)
	before := readRow(t, store)
	a.store.come()
	a.logs.await(t, "Successfully acquired lease", 2)
	require.Greater(t, readRow(t, store).sequence, before.sequence)
	require.Equal(t, before.Incarnation, readRow(t, store).Incarnation)
	g.none()
	term.live(t)
	require.Len(t, a.logs.find("can be read and written again"), 1)
	require.EqualValues(t, 1, testutil.ToFloat64(a.metrics.isLeader))
	a.stop()
	require.EqualValues(t, 0, testutil.ToFloat64(a.metrics.isLeader))
	n, err := testutil.GatherAndCount(registry)
	require.NoError(t, err)
	require.Zero(t, n, "metrics stay registered after Run")
}

func TestAnExpiredLockIsTakenAndTheOldLeaderStopsOnceItSees(t *testing.T) {
	t.Parallel()
	g := newGroup(t, quick)
	store := newStore(t)
	a := g.join(store, "a")
	first := g.next()
	a.sees("a")
	b := g.join(store, "b")
	b.sees("a")
	a.store.leave()
	second := g.next()
	require.Equal(t, "b", second.member)
	require.False(t, second.handedOver, "taken after expiry")
	first.live(t) // it cannot have seen
	a.store.come()
	first.ends(t)
	a.sees("b")
	b.sees("b")
	require.Equal(t, "b", a.Holder())
	second.live(t)
	require.EqualValues(t, 2, testutil.ToFloat64(a.metrics.transitions))
}

// TestALostLockIsNotRenewed: the row is another's by the time the leader's Lead
// returns, and stays so.
func TestALostLockIsNotRenewed(t *testing.T) {
	t.Parallel()
	g := newGroup(t, quick)
	store := newStore(t)
	a := g.join(store, "a")
	first := g.next()
	first.hold = make(chan struct{})
	// The other releases as soon as it has the lock, so that client-go would
	// renew what it finds.
	old := readRow(t, store)
	swap(t, store, func(old *row) record {
		rec := old.record
		rec.HolderIdentity, rec.Incarnation, rec.LeaseDurationSeconds = "", "other", 1
		return rec
	})
	first.ends(t)
	r := readRow(t, store)
	require.Empty(t, r.HolderIdentity)
	require.Equal(t, "other", r.Incarnation)
	require.Greater(t, r.sequence, old.sequence)
	close(first.hold)
	second := g.next() // by an acquisition of its own
	require.Equal(t, "a", second.member)
	require.False(t, second.handedOver)
	a.sees("a", "", "a")
}

// swap changes the lock row behind the members' back.
func swap(t testing.TB, store sqlstore.Store, change func(*row) record) {
	t.Helper()
	for {
		old := readRow(t, store)
		r, err := encodeRow(old, change(old))
		require.NoError(t, err)
		b := store.BeginBatchWrite()
		b.CAS(coder.LockKey(), r.raw, old.raw)
		err = b.Commit(context.Background())
		var conflict *sqlstore.Conflict
		if errors.As(err, &conflict) {
			continue // the holder renewed
		}
		require.NoError(t, err)
		return
	}
}

func TestAMissingRowIsNobodysAndTheLeaderWritesItAgain(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	a := g.join(store, "a")
	term := g.next()
	require.True(t, term.handedOver, "there was no record")
	b := store.BeginBatchWrite()
	b.Del(coder.LockKey())
	require.NoError(t, b.Commit(t.Context()))
	a.sees("a", "", "a")
	require.Equal(t, "a", readRow(t, store).HolderIdentity)
	term.live(t)
	g.none()
}

func TestALeadThatFailsLetsAnotherLead(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	a := g.join(store, "a")
	first := g.next()
	b := g.join(store, "b")
	b.sees("a")
	first.quit <- errAway
	second := g.next()
	require.Equal(t, "b", second.member)
	require.False(t, second.handedOver, "a leader that failed may have fenced nobody")
	require.EqualValues(t, 1, testutil.ToFloat64(a.metrics.leadFailures))
	second.quit <- nil
	third := g.next()
	require.True(t, third.handedOver)
	b.stop()
	a.stop()
	require.Zero(t, testutil.ToFloat64(b.metrics.leadFailures))
}

func TestALeadThatFailsIsTriedAgainWhenNobodyElseIsThere(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	g.join(newStore(t), "a")
	for range 3 {
		g.next().quit <- errAway
	}
	g.next().live(t)
}

func TestAMemberStandsBackLongerEveryTime(t *testing.T) {
	const retry = time.Second
	var s standBack
	require.False(t, s.active())
	for _, want := range []int{4, 8, 16, 32, 64, 64} {
		require.Equal(t, time.Duration(want)*retry, s.after(retry, retry))
	}
	require.True(t, s.active())
	require.Equal(t, 4*retry, s.after(65*retry, retry), "after a long term")
}

func TestARestartTakesItsOwnLockAtOnce(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	a := g.join(store, "a")
	first := g.next()
	a.store.leave() // as a process that is gone
	again := g.join(store, "a")
	second := g.next()
	require.False(t, second.handedOver)
	first.live(t)
	again.sees("a")
	require.NotEqual(t, a.lock.incarnation, again.lock.incarnation)
	// The old one, if it lives after all, leaves the lock to the younger.
	a.store.come()
	first.ends(t)
	requireStays(t, g, a, second)
	a.stop()
	require.Equal(t, "a", readRow(t, store).HolderIdentity)
	second.live(t)
}

// TestAStopReleasesOnlyWhatThisProcessHolds: the lock is another process's, of
// the same identity, which the one that stops has not seen.
func TestAStopReleasesOnlyWhatThisProcessHolds(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	a := g.join(store, "a")
	g.next()
	a.store.leave()
	g.join(store, "a")
	second := g.next()
	a.cancel()
	a.store.come()
	wait(t, a.stopped, "Run to return")
	require.Equal(t, "a", readRow(t, store).HolderIdentity)
	second.live(t)
}

// TestALockTakenAndTransferredBackWasLost: the leader did not look meanwhile.
func TestALockTakenAndTransferredBackWasLost(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	a := g.join(store, "a")
	first := g.next()
	b := g.join(store, "b")
	b.sees("a")
	a.store.leave()
	b.reportDead("a")
	g.next()
	require.NoError(t, b.Transfer(t.Context(), "a"))
	first.live(t)
	first.hold = make(chan struct{})
	a.store.come()
	first.ends(t)
	g.none()
	close(first.hold)
	second := g.next()
	require.Equal(t, "a", second.member)
	require.True(t, second.handedOver)
}
