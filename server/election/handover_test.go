package election

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestTransferNamesTheSuccessorAndSkipsTheOthers(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	members := map[string]*member{"a": g.join(store, "a")}
	first := g.next()
	for _, name := range []string{"b", "c", "d", "e"} {
		members[name] = g.join(store, name)
		members[name].sees("a")
	}
	for _, successor := range []string{"d", "b", "a", "e"} {
		holder := members[first.member]
		require.NoError(t, holder.Transfer(t.Context(), successor))
		require.Error(t, first.ctx.Err())
		second := g.next()
		require.Equal(t, successor, second.member)
		require.True(t, second.handedOver)
		first = second
	}
	g.none()
	first.live(t)
}

func TestTransferToAMemberThatIsNotThereExpires(t *testing.T) {
	t.Parallel()
	g := newGroup(t, quick)
	store := newStore(t)
	a := g.join(store, "a")
	g.next()
	b := g.join(store, "b")
	b.sees("a")
	require.NoError(t, a.Transfer(t.Context(), "nobody"))
	b.sees("nobody")
	require.True(t, g.next().handedOver, "nobody leads since")
}

func TestTransferOnlyByTheHolderAndOneAtATime(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	a := g.join(store, "a")
	term := g.next()
	b := g.join(store, "b")
	b.sees("a")
	require.ErrorIs(t, b.Transfer(t.Context(), "c"), ErrNotHolder)
	require.ErrorIs(t, a.Transfer(t.Context(), ""), ErrNoSuccessor)
	require.NoError(t, a.Transfer(t.Context(), "a"))
	term.live(t)

	term.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, a.Transfer(ctx, "b"), context.Canceled)
	term.ends(t)
	require.ErrorIs(t, a.Transfer(t.Context(), "c"), ErrTransferring)
	require.Equal(t, "a", readRow(t, store).HolderIdentity, "not before Lead has returned")
	close(term.hold)
	second := g.next()
	require.Equal(t, "b", second.member, "the transfer goes on though nobody waits for it")
	require.True(t, second.handedOver)
	require.ErrorIs(t, a.Transfer(t.Context(), "b"), ErrNotHolder)
}

// TestTransferAfterTheLockWasLost: the lock is another's when Lead returns.
func TestTransferAfterTheLockWasLost(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	a := g.join(store, "a")
	term := g.next()
	term.hold = make(chan struct{})
	result := make(chan error, 1)
	go func() { result <- a.Transfer(context.Background(), "b") }()
	term.ends(t)
	swap(t, store, func(old *row) record {
		rec := old.record
		rec.HolderIdentity, rec.Incarnation = "c", "c's"
		return rec
	})
	a.sees("a", "c")
	close(term.hold)
	require.ErrorIs(t, wait(t, result, "Transfer to return"), ErrNotHolder)
	require.Equal(t, "c", readRow(t, store).HolderIdentity)
}

func TestTransferWithAnUnknownOutcomeIsSettled(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{true, false} {
		g := newGroup(t, slow)
		store := newStore(t)
		a := g.join(store, "a")
		term := g.next()
		term.hold = make(chan struct{})
		result := make(chan error, 1)
		go func() { result <- a.Transfer(context.Background(), "b") }()
		term.ends(t)
		fault := uncertainWhen(applied, func() bool { return a.returned() })
		a.store.onCommit(fault)
		close(term.hold)
		require.NoError(t, wait(t, result, "Transfer to return"))
		r := readRow(t, store)
		require.Equal(t, "b", r.HolderIdentity)
		require.True(t, r.HandedOver)
		a.stop()
	}
}

// returned reports whether Lead has, so that the next write is the release.
func (m *member) returned() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lead != nil && m.lead.returned
}

// uncertainWhen returns a hook by which the first commit for which when is true
// ends without an answer; applied or not.
func uncertainWhen(applied bool, when func() bool) func(context.Context, func() error) error {
	done := false
	return func(_ context.Context, commit func() error) error {
		if done || !when() {
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

func TestAcquiringWithAnUnknownOutcomeIsSettled(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{true, false} {
		g := newGroup(t, slow)
		store := newStore(t)
		hook := uncertainWhen(applied, func() bool { return true })
		a := g.join(store, "a", func(c *Config) { c.Store.(*faultyStore).onCommit(hook) })
		require.True(t, g.next().handedOver, "nobody had led before")
		a.sees("a")
		a.stop()
	}
}

func TestALockTakenWithAnUnknownOutcomeIsReleasedOnStop(t *testing.T) {
	t.Parallel()
	g := newGroup(t, slow)
	store := newStore(t)
	taken, resume := make(chan struct{}), make(chan struct{})
	first := true
	a := g.join(store, "a", func(c *Config) {
		c.Store.(*faultyStore).onCommit(func(ctx context.Context, commit func() error) error {
			if !first {
				return commit()
			}
			first = false
			err := commit()
			close(taken)
			<-ctx.Done() // the stop cuts it off
			<-resume
			if err != nil {
				return err
			}
			return sqlstore.ErrUncertain
		})
	})
	wait(t, taken, "the lock to be taken")
	require.Equal(t, "a", readRow(t, store).HolderIdentity)
	a.cancel()
	close(resume)
	a.stop()
	require.Empty(t, readRow(t, store).HolderIdentity)
	require.False(t, readRow(t, store).HandedOver, "whoever led before may still")
	g.none()
}

func TestStoppingWaitsForLeadAndRenewsMeanwhile(t *testing.T) {
	t.Parallel()
	g := newGroup(t, quick)
	store := newStore(t)
	a := g.join(store, "a")
	term := g.next()
	term.hold = make(chan struct{})
	a.cancel()
	term.ends(t)
	before := readRow(t, store)
	b := g.join(store, "b")
	for reads := b.store.reads(); readRow(t, store).sequence < before.sequence+5; {
		wait(t, reads, "the other to look")
	}
	require.Equal(t, "a", readRow(t, store).HolderIdentity)
	g.none()
	close(term.hold)
	wait(t, a.stopped, "Run to return")
	a.sees("a", "") // everything was told before Run returned
	require.True(t, g.next().handedOver)
}

func TestStoppingWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	g := newGroup(t, quick)
	a := g.join(newStore(t), "a")
	g.next()
	a.store.leave()
	a.stop() // ends within the renew deadline, though the lock stays
	require.Len(t, a.logs.find("expires by itself"), 1)

	hang := func(ctx context.Context, _ func() ([]byte, error)) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	g = newGroup(t, slow)
	b := g.join(newStore(t), "b", func(c *Config) { c.Store.(*faultyStore).onGet(hang) })
	b.logs.await(t, "Attempting to acquire leader lease", 1)
	b.stop() // ends the read
}

func TestRetryAttemptsAtOnce(t *testing.T) {
	t.Parallel()
	g := newGroup(t, Config{LeaseDuration: 3 * time.Hour, RenewDeadline: 2 * time.Hour, RetryPeriod: time.Hour})
	store := newStore(t)
	a := g.join(store, "a")
	g.next()
	b := g.join(store, "b")
	b.sees("a")
	a.stop()
	b.Retry()
	require.Equal(t, "b", g.next().member)
	b.Retry() // nothing to a leader

	// An attempt under way may have read the row before: another follows it.
	c := g.join(store, "c")
	c.sees("b")
	read, resume := make(chan struct{}), make(chan struct{})
	c.store.onGet(func(_ context.Context, get func() ([]byte, error)) ([]byte, error) {
		raw, err := get()
		c.store.onGet(nil)
		close(read)
		<-resume
		return raw, err
	})
	c.Retry()
	wait(t, read, "an attempt")
	b.stop()
	c.Retry()
	c.Retry()
	close(resume)
	require.Equal(t, "c", g.next().member)
	c.stop()
	c.Retry() // nothing to one that stopped
}
