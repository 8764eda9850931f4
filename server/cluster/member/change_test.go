package member

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestAdd(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		ctx := t.Context()
		r := start(t, store, "n1", "http://10.0.0.1:2380", "http://10.0.0.1:2381")
		for _, bad := range [][]string{nil, {""}, {"10.0.0.2:2380"}, {"ftp://10.0.0.2:2380"}, {"http://10.0.0.2"},
			{"http://10.0.0.2:2380/x"}, {"http://10.0.0.2:2380", "x"}} {
			_, _, err := r.Add(ctx, bad, false)
			require.ErrorIs(t, err, ErrBadURLs, "%q", bad)
		}
		_, _, err := r.Add(ctx, []string{"http://10.0.0.2:2380"}, true)
		require.ErrorIs(t, err, ErrLearners)
		_, _, err = r.Add(ctx, []string{"http://10.0.0.2:2380", "http://10.0.0.1:2381"}, false)
		require.ErrorIs(t, err, ErrPeerURLExists)
		require.Len(t, list(t, r), 1)

		added, members, err := r.Add(ctx, []string{"http://10.0.0.3:2380", "http://10.0.0.2:2380"}, false)
		require.NoError(t, err)
		require.NotZero(t, added.ID)
		require.Equal(t, []string{"http://10.0.0.2:2380", "http://10.0.0.3:2380"}, added.PeerURLs, "in etcd's order")
		require.Len(t, members, 2)
		require.Contains(t, members, added)
		require.Equal(t, members, list(t, r))
		require.Less(t, members[0].ID, members[1].ID)
		_, _, err = r.Add(ctx, []string{"http://10.0.0.3:2380"}, false)
		require.ErrorIs(t, err, ErrPeerURLExists, "of one that has not started")
	})
}

// TestAddsAreBounded: the rows of the members, which all read again and again, stay small.
func TestAddsAreBounded(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		ctx := t.Context()
		r := start(t, store, "n1", "http://10.0.0.1:2380")
		_, _, err := r.Add(ctx, []string{"http://" + strings.Repeat("h", maxURLBytes) + ":2380"}, false)
		require.ErrorIs(t, err, ErrBadURLs)
		var many []string
		for i := range maxURLBytes / len("http://10.0.1.1:10000") {
			many = append(many, fmt.Sprint("http://10.0.1.1:", 10000+i))
		}
		_, err = r.Update(ctx, r.id, append(many, "http://10.0.1.1:2380"))
		require.ErrorIs(t, err, ErrBadURLs)
		_, err = r.Update(ctx, r.id, many)
		require.NoError(t, err)

		var last Member
		for i := range mostWaiting {
			last, _, err = r.Add(ctx, []string{fmt.Sprint("http://10.0.0.2:", 1+i)}, false)
			require.NoError(t, err)
		}
		_, _, err = r.Add(ctx, []string{"http://10.0.0.2:2380"}, false)
		require.ErrorIs(t, err, ErrNotEnoughStarted)
		_, err = r.Remove(ctx, last.ID)
		require.NoError(t, err)
		_, _, err = r.Add(ctx, []string{"http://10.0.0.2:2380"}, false)
		require.NoError(t, err)
	})
}

// Two calls that look at the same moment must not both find the URL free.
func TestOneOfManyAddsOfAURLWins(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		const nodes = 4
		var wg sync.WaitGroup
		var mu sync.Mutex
		added := 0
		for i := range nodes {
			r := start(t, store, fmt.Sprint(i), fmt.Sprintf("http://10.0.0.%d:2380", i))
			wg.Go(func() {
				_, _, err := r.Add(t.Context(), []string{"http://10.0.1.1:2380", fmt.Sprintf("http://10.0.2.%d:2380", i)}, false)
				if err != nil {
					assert.ErrorIs(t, err, ErrPeerURLExists)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				added++
			})
			wg.Go(func() { assert.NoError(t, r.heartbeat(t.Context(), nil), "heartbeats go on meanwhile") })
		}
		wg.Wait()
		require.Equal(t, 1, added)
		require.Len(t, list(t, start(t, store, "0")), nodes+1)
	})
}

func TestRemove(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		ctx := t.Context()
		n1, n2 := start(t, store, "n1", "http://10.0.0.1:2380"), start(t, store, "n2", "http://10.0.0.2:2380")
		_, err := n1.Remove(ctx, 12345)
		require.ErrorIs(t, err, ErrNotFound)
		added, _, err := n1.Add(ctx, []string{"http://10.0.0.3:2380"}, false)
		require.NoError(t, err)
		_, err = n1.Remove(ctx, added.ID)
		require.NoError(t, err)

		id := n2.Self().ID
		members, err := n1.Remove(ctx, id)
		require.NoError(t, err)
		require.Equal(t, []Member{n1.Self()}, members)
		_, err = n1.Remove(ctx, id)
		require.ErrorIs(t, err, ErrNotFound)

		heartbeat(t, n2)
		requireEnded(t, n2, ErrRemoved)
		heartbeat(t, n2)
		require.Equal(t, members, list(t, n2), "its heartbeats do not bring it back, but it still knows the others")
		_, err = n2.Remove(ctx, n1.Self().ID)
		require.ErrorIs(t, err, ErrRemoved, "it has no say any more")

		again := start(t, store, "n2", "http://10.0.0.2:2380")
		require.NotEqual(t, id, again.Self().ID)
		requireEnded(t, n2, ErrRemoved)
		_, found, err := again.Find(ctx, id)
		require.NoError(t, err)
		require.False(t, found)
	})
}

func TestTheLastOneAliveCannotBeRemoved(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		ctx := t.Context()
		n1 := start(t, store, "n1")
		_, err := n1.Remove(ctx, n1.Self().ID)
		require.ErrorIs(t, err, ErrNotEnoughStarted)
		writeRow(t, store, "old", `{"id":7}`)
		_, _, err = n1.Add(ctx, []string{"http://10.0.0.3:2380"}, false)
		require.NoError(t, err)
		n2 := start(t, store, "n2")
		_, err = n1.Remove(ctx, n1.Self().ID)
		require.ErrorIs(t, err, ErrNotEnoughStarted, "there is another row, but nobody has seen a heartbeat of it")
		heartbeat(t, n2)
		_, err = n1.Remove(ctx, n1.Self().ID)
		require.NoError(t, err)
		requireEnded(t, n1, ErrRemoved)
	})
}

// Members that remove each other at the same moment do not both get their way.
func TestMembersRemoveEachOther(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		rs := []*Registry{start(t, store, "n1"), start(t, store, "n2")}
		errs := make([]error, len(rs))
		var wg sync.WaitGroup
		for i, r := range rs {
			wg.Go(func() { _, errs[i] = r.Remove(t.Context(), rs[1-i].Self().ID) })
		}
		wg.Wait()
		winner := 0
		if errs[winner] != nil {
			winner = 1
		}
		require.NoError(t, errs[winner])
		require.ErrorIs(t, errs[1-winner], ErrRemoved)
		require.Equal(t, []Member{rs[winner].Self()}, list(t, rs[winner]))
	})
}

func TestUpdate(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		ctx := t.Context()
		n1, n2 := start(t, store, "n1", "http://10.0.0.1:2380"), start(t, store, "n2", "http://10.0.0.2:2380")
		added, _, err := n1.Add(ctx, []string{"http://10.0.0.3:2380"}, false)
		require.NoError(t, err)

		_, err = n1.Update(ctx, 12345, nil)
		require.ErrorIs(t, err, ErrNotFound)
		_, err = n1.Update(ctx, added.ID, nil)
		require.ErrorIs(t, err, ErrBadURLs)
		_, err = n1.Update(ctx, added.ID, []string{"http://10.0.0.2:2380"})
		require.ErrorIs(t, err, ErrPeerURLExists)

		members, err := n1.Update(ctx, added.ID, []string{"http://10.0.0.3:2380", "http://10.0.0.4:2380"})
		require.NoError(t, err, "its own URL is not in its way")
		added.PeerURLs = []string{"http://10.0.0.3:2380", "http://10.0.0.4:2380"}
		require.Contains(t, members, added)

		id := n2.Self().ID
		_, err = n1.Update(ctx, id, []string{"http://10.0.0.5:2380"})
		require.NoError(t, err)
		require.Equal(t, []string{"http://10.0.0.5:2380"}, member(t, n1, "n2").PeerURLs)
		heartbeat(t, n2)
		require.NoError(t, n2.Err())
		require.Equal(t, []string{"http://10.0.0.5:2380"}, n2.Self().PeerURLs)
		heartbeat(t, n2)
		require.Equal(t, []string{"http://10.0.0.5:2380"}, member(t, n1, "n2").PeerURLs, "heartbeats keep it")
		_, err = n1.Update(ctx, id, []string{"http://10.0.0.5:2380"})
		require.NoError(t, err, "nothing to change")
	})
}

func TestFindLooksForMembersItHasNotSeen(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		n1 := start(t, store, "n1")
		n2 := start(t, store, "n2")
		require.Len(t, n1.Cached(), 1)
		m, ok, err := n1.Find(t.Context(), n2.Self().ID)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "n2", m.Name)
		require.Len(t, n1.Cached(), 2)
		_, ok, err = n1.Find(t.Context(), 12345)
		require.NoError(t, err)
		require.False(t, ok)
	})
}

// TestATemporaryMemberLeavesNothing: its row goes with its process, unless another process has taken its name.
func TestATemporaryMemberLeavesNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		stays := start(t, store, "stays", "http://10.0.0.1:2380")
		join := func(force bool) *Registry {
			cfg := config(t, store, "goes", "http://10.0.0.2:2380")
			cfg.Temporary, cfg.Force = true, force
			r, err := Join(t.Context(), cfg)
			require.NoError(t, err)
			return r
		}
		first := join(false)
		id := first.Self().ID
		require.NoError(t, first.Leave(t.Context()))
		require.Len(t, list(t, stays), 1)

		second := join(false)
		require.NotEqual(t, id, second.Self().ID, "an id never comes back")
		third := join(true)
		require.NoError(t, second.Leave(t.Context()))
		require.Len(t, list(t, stays), 2, "the row is the third process's")
		require.NoError(t, third.Leave(t.Context()))
		require.NoError(t, third.Leave(t.Context()), "again")
		require.Len(t, list(t, stays), 1)
	})
}
