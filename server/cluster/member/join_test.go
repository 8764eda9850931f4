package member

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

func TestIDsAreStableByName(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		first := start(t, store, "n1", "http://10.0.0.1:2380").Self()
		other := start(t, store, "n2", "http://10.0.0.2:2380").Self()
		again := start(t, store, "n1", "http://10.0.0.1:2380").Self()
		require.NotZero(t, first.ID)
		require.NotEqual(t, first.ID, other.ID)
		require.Equal(t, first.ID, again.ID)
		require.NotEqual(t, first.Incarnation, again.Incarnation)
		require.Equal(t, Member{
			ID: first.ID, Name: "n1", PeerURLs: []string{"http://10.0.0.1:2380"}, ClientURLs: []string{"http://n1:2379"},
			StartURLs: []string{"http://10.0.0.1:2380"}, Version: "v1", Incarnation: again.Incarnation, Alive: true,
			Protocol: Protocol, RoundTrip: again.RoundTrip,
		}, again)
	})
}

func TestMemberNames(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		names := []string{"a", "A", "a ", "ä", "a\u0308", "名前", "\x00", "z\x00\x00\x00\x00\x00\x00\x00\x00", "+",
			"changes",
			strings.Repeat("n", 3068)}
		ids := map[uint64]string{}
		for _, name := range names {
			r := start(t, store, name)
			heartbeat(t, r)
			require.NoError(t, r.Err())
			ids[r.Self().ID] = name
		}
		r := start(t, store, "a")
		for _, m := range list(t, r) {
			assert.Equal(t, ids[m.ID], m.Name)
			assert.True(t, m.Started())
		}
		require.Len(t, list(t, r), len(names))
		for _, name := range []string{"", "\xff", "\xffchanges", "\xff+1", "a\x80", strings.Repeat("n", 3069)} {
			_, err := Join(t.Context(), Config{Store: store, Name: name})
			require.Error(t, err, "%q", name)
		}
	})
}

func TestJoinRefusesBadSettings(t *testing.T) {
	store := newStore(t)
	_, err := Join(t.Context(), Config{Store: store, Name: "n", PeerURLs: []string{"10.0.0.1:2380"}})
	require.ErrorIs(t, err, ErrBadURLs)
	_, err = Join(t.Context(), Config{Name: "n"})
	require.Error(t, err)
	writeRow(t, store, "broken", `{"id":0}`)
	_, err = Join(t.Context(), Config{Store: store, Name: "n"})
	require.ErrorContains(t, err, `"broken"`)
}

func TestJoinTakesOverAnAddedMember(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		n1 := start(t, store, "n1", "http://10.0.0.1:2380")
		added, _, err := n1.Add(t.Context(), []string{"http://10.0.0.3:2380", "http://10.0.0.2:2380"}, false)
		require.NoError(t, err)
		require.False(t, added.Started())

		known := start(t, store, "n1", "http://10.0.0.2:2380", "http://10.0.0.3:2380")
		require.Equal(t, n1.Self().ID, known.Self().ID, "a name that is known keeps its id")
		fewer := start(t, store, "fewer", "http://10.0.0.2:2380")
		require.NotEqual(t, added.ID, fewer.Self().ID, "the URLs are not the same")

		n2 := start(t, store, "n2", "http://10.0.0.2:2380", "http://10.0.0.3:2380")
		require.Equal(t, added.ID, n2.Self().ID)
		require.Len(t, list(t, n2), 3, "no row without a name is left")
		n2 = start(t, store, "n2", "http://10.0.0.2:2380", "http://10.0.0.3:2380")
		require.Equal(t, added.ID, n2.Self().ID)
	})
}

func TestAForcedProcessReplacesTheOneBefore(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		older := start(t, store, "default")
		heartbeat(t, older)
		require.NoError(t, older.Err())
		newer := replace(t, store, "default")
		heartbeat(t, older)
		requireEnded(t, older, ErrReplaced)
		heartbeat(t, newer)
		require.NoError(t, newer.Err())

		_, _, err := older.Add(t.Context(), []string{"http://10.0.0.2:2380"}, false)
		require.ErrorIs(t, err, ErrReplaced)
		require.NoError(t, older.Leave(t.Context()))
		heartbeat(t, older)
		require.Equal(t, newer.Self().Incarnation, member(t, newer, "default").Incarnation)
		require.True(t, member(t, newer, "default").Alive, "the older one has no say any more")
	})
}

// Of many processes that start under one name at once, exactly one joins; those
// that lost the race are refused.
func TestOneOfConcurrentProcessesOfANameJoins(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		const processes = 8
		rs := make([]*Registry, processes)
		var wg sync.WaitGroup
		for i := range rs {
			wg.Go(func() {
				var err error
				if rs[i], err = Join(t.Context(), config(t, store, "default")); err != nil {
					assert.ErrorIs(t, err, ErrRunning)
				}
			})
		}
		wg.Wait()
		var members []uint64
		for _, r := range rs {
			if r == nil {
				continue
			}
			heartbeat(t, r)
			if r.Err() == nil {
				members = append(members, r.Self().Incarnation)
				require.Len(t, list(t, r), 1)
			}
		}
		require.Len(t, members, 1)
	})
}

// What Update set holds over restarts, until the process is started otherwise.
func TestUpdatedURLsOutliveARestart(t *testing.T) {
	onEngines(t, func(t *testing.T, store sqlstore.Store) {
		r := start(t, store, "n1", "http://10.0.0.1:2380")
		_, err := r.Update(t.Context(), r.Self().ID, []string{"http://10.0.0.9:2380"})
		require.NoError(t, err)
		require.Equal(t, []string{"http://10.0.0.9:2380"}, r.Self().PeerURLs)
		heartbeat(t, r)
		r = start(t, store, "n1", "http://10.0.0.1:2380")
		require.Equal(t, []string{"http://10.0.0.9:2380"}, r.Self().PeerURLs)
		r = start(t, store, "n1", "http://10.0.0.2:2380")
		require.Equal(t, []string{"http://10.0.0.2:2380"}, r.Self().PeerURLs)
		r = start(t, store, "n1")
		require.Empty(t, r.Self().PeerURLs)
	})
}

func TestJoinFailsIfMetricsAreTaken(t *testing.T) {
	store, reg := newStore(t), prometheus.NewRegistry()
	r, err := Join(t.Context(), Config{Store: store, Name: "n", Registerer: reg})
	require.NoError(t, err)
	_, err = Join(t.Context(), Config{Store: store, Name: "m", Registerer: reg})
	require.Error(t, err)
	_, err = store.Get(t.Context(), coder.EncodeMemberKey("m"))
	require.ErrorIs(t, err, sqlstore.ErrKeyNotFound)
	require.NoError(t, r.Leave(t.Context()))
	_, err = Join(t.Context(), Config{Store: store, Name: "m", Registerer: reg})
	require.NoError(t, err, "Leave gives the metrics back")
}

// TestJoinWhoseCommitTakesEffectLate: an attempt of which the process heard nothing, when it has begun another one.
func TestJoinWhoseCommitTakesEffectLate(t *testing.T) {
	store := memstore.New()
	defer func() { require.NoError(t, store.Close()) }()
	late := &lateStore{Store: store}
	r, err := Join(t.Context(), Config{Store: late, Name: "n1"})
	require.NoError(t, err)
	require.NoError(t, r.Err())
	require.NotZero(t, r.Self().ID)
	require.Equal(t, 2, late.commits)
}

// lateStore is a store whose first commit has an unknown outcome, and takes effect just before the second.
type lateStore struct {
	sqlstore.Store
	commits int
	first   func() error
}

func (s *lateStore) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		switch s.commits++; s.commits {
		case 1:
			s.first = func() error { return b.BatchWrite.Commit(context.WithoutCancel(ctx)) }
			return fmt.Errorf("%w: made up", sqlstore.ErrUncertain)
		case 2:
			if err := s.first(); err != nil {
				return err
			}
		}
		return b.BatchWrite.Commit(ctx)
	})
}
