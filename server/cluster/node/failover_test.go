package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/cluster/feed"
	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// The leader's address does not answer, which proves nothing: it keeps the lock until it leaves a challenge
// unanswered. Calls that wait for it then get an error.
func TestUnreachableLeaderKeepsTheLockUntilItIsChallenged(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), quick, 3)
	putAnywhere(t, g.all(), "k", "1")
	old := g.leader()
	term := old.Replica().Status().Term
	followers := g.others(old)

	began := time.Now()
	old.freeze()
	waiting := followers[0]
	client, self, err := waiting.Route(t.Context())
	require.NoError(t, err)
	require.False(t, self)
	answered := make(chan error, 1)
	go func() {
		_, err := feed.NewClient(client).Position(context.Background())
		answered <- err
	}()
	rev := putAnywhere(t, followers, "k", "2")
	report(t, "a leader froze, another one leads", began)
	select {
	case err := <-answered:
		report(t, "a call to the frozen one ended", began)
		// Unavailable if the connection was not made yet when the leader froze.
		require.Contains(t, []codes.Code{codes.Canceled, codes.Unavailable}, status.Code(errors.Unwrap(err)), "%v", err)
	case <-time.After(deadline):
		require.Fail(t, "a call waits for the frozen leader")
	}
	for _, m := range followers {
		requireGet(t, m, "k", "2")
	}

	// What it was about to write, and is asked to read, when it comes back.
	write := make(chan error, 1)
	go func() {
		_, err := old.Replica().Txn(context.Background(), auth.System, put("k", "late"), true)
		write <- err
	}()
	eventually.True(t, "the write to be on its way", func() bool { return old.line.waits() })
	over := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				value, at, err := get(context.Background(), old, "k", true)
				if err == nil && (value != "2" || at < rev) {
					t.Errorf("read %q at revision %d", value, at)
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	old.thaw()
	require.Error(t, <-write)
	require.Greater(t, g.leader().Replica().Status().Term, term)
	close(over)
	readers.Wait()
	requireGet(t, old, "k", "2")
	putAnywhere(t, g.all(), "k", "3")
	requireGet(t, old, "k", "3")
}

// A node that resigns answers the calls in progress. Another node leads then; the one that
// resigned follows it, and routes requests to it.
func TestResignedNodeAnswersItsCallsAndFollows(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 0)
	g.joinThree(func(c *Config) { c.Replica.Handover = deadline })
	old := g.leader()
	watcher := watchAll(t, g.others(old)[0])
	var (
		writers sync.WaitGroup
		mu      sync.Mutex
		acked   int64
		busy    = make(chan struct{}, 1000)
	)
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				_, err := old.Replica().Txn(t.Context(), auth.System, put(fmt.Sprint("k", w), fmt.Sprint(i)), true)
				if errors.Is(err, mvcc.ErrNotLeader) {
					return
				}
				if err != nil {
					t.Errorf("a write of a leader that resigns: %v", err)
					return
				}
				mu.Lock()
				acked++
				mu.Unlock()
				select {
				case busy <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 10 {
		<-busy
	}
	began := time.Now()
	old.Resign()
	report(t, "resigned", began)
	writers.Wait()
	require.Equal(t, 1+acked, old.Replica().Revision(), "each write that was acknowledged, and no other, took effect")
	young := leader(t, g.others(old))
	report(t, "another one leads", began)
	client, self, err := old.Route(t.Context())
	require.NoError(t, err)
	require.False(t, self)
	require.Equal(t, []string{young.door.url()}, client.URLs())
	mustPut(t, young, "k", "after")
	requireGet(t, old, "k", "after")
	watcher.reach(young.Replica().Revision())

	// It does not stand any more, whoever goes; and learns who leads then.
	g.kill(young)
	last := g.leader()
	require.NotSame(t, old, last)
	mustPut(t, last, "k", "end")
	requireGet(t, old, "k", "end")
}

// The leadership moves to a member that is alive, and not to others.
func TestMoveLeader(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 3)
	old := g.leader()
	mustPut(t, old, "k", "1")
	other := g.others(old)
	require.ErrorIs(t, other[0].MoveLeader(t.Context(), other[1].id()), mvcc.ErrNotLeader)
	require.ErrorIs(t, old.MoveLeader(t.Context(), 4711), ErrBadTransferee)
	added, _, err := old.Members().Add(t.Context(), []string{"http://127.0.0.1:1"}, false)
	require.NoError(t, err)
	require.ErrorIs(t, old.MoveLeader(t.Context(), added.ID), ErrBadTransferee)
	_, err = old.Members().Remove(t.Context(), added.ID)
	require.NoError(t, err)
	require.NoError(t, old.MoveLeader(t.Context(), old.id()))
	require.True(t, old.Replica().Leading())

	began := time.Now()
	require.NoError(t, old.MoveLeader(t.Context(), other[1].id()))
	require.Same(t, other[1], g.leader())
	report(t, "the leadership moved", began)
	mustPut(t, other[1], "k", "2")
	requireGet(t, old, "k", "2")
	require.ErrorIs(t, old.MoveLeader(t.Context(), other[0].id()), mvcc.ErrNotLeader)

	// To a process that is gone, and nobody knows yet: the others find out.
	g.kill(other[0])
	began = time.Now()
	require.NoError(t, other[1].MoveLeader(t.Context(), other[0].id()))
	last := g.leader()
	report(t, "it moved to a dead process, and on", began)
	mustPut(t, last, "k", "3")
	eventually.True(t, "the dead one to be known for dead", func() bool {
		members, err := last.Members().Members(t.Context())
		require.NoError(t, err)
		for _, m := range members {
			if m.ID == other[0].id() {
				return !m.Alive
			}
		}
		return false
	})
	require.ErrorIs(t, last.MoveLeader(t.Context(), other[0].id()), ErrBadTransferee)
	require.Same(t, last, g.leader())
}

// A follower is to lead while it reads the log on a connection that the database has forgotten.
// The read is ended.
func TestHangingReadDoesNotDelayLeadership(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 2)
	old := g.leader()
	next := g.others(old)[0]
	requireGet(t, next, "k", "")
	old.door.jam() // no feed: it reads the log
	eventually.True(t, "the feed to be missed", func() bool { return next.silence() > timing.TablePoll })
	hung := next.line.hang(coder.AuthSettingsKey()) // the poll reads the fence row, too
	require.NoError(t, <-hung)
	next.line.hang(nil)
	old.Resign()
	eventually.True(t, "the next one to lead", next.Replica().Leading)
	for {
		if err := <-hung; err != nil {
			require.ErrorIs(t, err, context.Canceled, "it was waited for")
			return
		}
	}
}

// Close ends calls that wait for a leader when there is none.
func TestCloseEndsCallsWaitingForALeader(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 1)
	m := g.leader()
	m.Resign()
	waiting := make(chan error, 1)
	go func() {
		_, _, err := m.Route(context.Background())
		waiting <- err
	}()
	g.leave(m)
	select {
	case err := <-waiting:
		require.ErrorIs(t, err, mvcc.ErrNotServing)
	case <-time.After(deadline):
		require.Fail(t, "it waits on")
	}
	_, err := m.Position(t.Context())
	require.ErrorIs(t, err, mvcc.ErrNotServing)
	require.NotErrorIs(t, err, link.ErrClosed)
}
