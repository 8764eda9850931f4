package member

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

func TestASecondProcessOfALiveMemberIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		cfg := Config{Store: store, Name: "n1", PeerURLs: []string{"http://10.0.0.1:2380"}}
		r, err := Join(t.Context(), cfg)
		require.NoError(t, err)
		first := run(t, r)
		defer first.kill()
		pass((1 + 2 + 4) * timing.FirstHeartbeat) // the third heartbeat is sent
		began := time.Now()
		cfg.PeerURLs = []string{"http://10.0.0.2:2380"}
		_, err = Join(t.Context(), cfg)
		require.ErrorIs(t, err, ErrRunning)
		for _, part := range []string{`"n1"`, fmt.Sprintf("%x", r.Self().ID), "http://10.0.0.1:2380", "heartbeat 4 "} {
			require.ErrorContains(t, err, part)
		}
		require.Less(t, time.Since(began), timing.MissedPolls*timing.Poll, "it answered")
		time.Sleep(3 * interval)
		require.NoError(t, first.Err())
	})
}

// TestAProcessThatWasKilledIsReplaced after it has been silent, and not before.
func TestAProcessThatWasKilledIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		log := &eventually.Log{}
		cfg := Config{Store: store, Name: "n1", Logger: slog.New(slog.NewTextHandler(log, nil))}
		for range 3 {
			began := time.Now()
			r, err := Join(t.Context(), cfg)
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(began), timing.MissedPolls*timing.Poll)
			p := run(t, r)
			time.Sleep(interval)
			p.kill()
		}
		require.Equal(t, 2, strings.Count(log.String(), "waiting until the previous process of this member has been silent"))

		// The last one says that it stops, and the next one need not wait.
		r, err := Join(t.Context(), cfg)
		require.NoError(t, err)
		require.NoError(t, r.Leave(t.Context()))
		began := time.Now()
		_, err = Join(t.Context(), cfg)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
	})
}

// While the database takes no writes, no process can answer, and none is replaced.
func TestStalledDatabaseDoesNotCountAsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stalls{Store: memstore.New()}
		n1 := run(t, start(t, store, "n1"))
		defer n1.kill()
		n2 := start(t, store, "n2")
		for _, interval := range []time.Duration{40 * time.Millisecond, time.Second} {
			until := time.Now().Add(20 * time.Second)
			store.until.Store(&until)
			silent, _ := n2.challenges(t, n1.Self().ID, interval)
			require.False(t, silent)
		}
	})
}

// challenges challenges a member as another process of its name does.
func (r *Registry) challenges(t *testing.T, id uint64, interval time.Duration) (silent bool, after time.Duration) {
	t.Helper()
	began := time.Now()
	table, err := readTable(t.Context(), r.store)
	require.NoError(t, err)
	e, _ := table.withID(id)
	seen, err := challenge(t.Context(), r.store, e, interval)
	require.NoError(t, err)
	return seen == nil, time.Since(began)
}

// stalls is a store whose commits wait until a time.
type stalls struct {
	sqlstore.Store
	until atomic.Pointer[time.Time] // nil: they do not wait
}

func (s *stalls) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if until := s.until.Load(); until != nil {
			if err := retry.Sleep(ctx, time.Until(*until)); err != nil {
				return err
			}
		}
		return b.BatchWrite.Commit(ctx)
	})
}

func TestUnansweredChallengesProveSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 200 * time.Millisecond
		store := memstore.New()
		n1 := run(t, start(t, store, "n1"))
		defer n1.kill()
		n2 := run(t, start(t, store, "n2", "http://10.0.0.2:2380"))
		time.Sleep(time.Millisecond)
		silent := func() bool {
			silent, _ := n1.challenges(t, n2.Self().ID, interval)
			return silent
		}
		running := func() (names []string) {
			all, err := ListRunning(t.Context(), store)
			require.NoError(t, err)
			for _, r := range all {
				names = append(names, r.Name)
			}
			return names
		}
		require.False(t, silent())
		require.Equal(t, []string{"n1", "n2"}, running())
		require.False(t, silent(), "each challenge asks for an answer of its own")

		n2.kill()
		began := time.Now()
		require.True(t, silent())
		require.Equal(t, timing.MissedPolls*interval, time.Since(began))
		require.Equal(t, []string{"n1"}, running())

		n2 = run(t, start(t, store, "n2"))
		require.False(t, silent())
		n2.kill()
		require.NoError(t, n2.Leave(t.Context()))
		began = time.Now()
		require.True(t, silent(), "it said that it stopped")
		require.Zero(t, time.Since(began))
		_, err := n1.Remove(t.Context(), n2.Self().ID)
		require.NoError(t, err)
		require.True(t, silent(), "it is no member any more")
	})
}
