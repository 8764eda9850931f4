package member

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

func TestMain(m *testing.M) { eventually.NoLeaks(enginetest.Main(m)) }

// onEngines runs f on an empty store of each kind.
func onEngines(t *testing.T, f func(t *testing.T, store sqlstore.Store)) {
	stores := map[string]func(testing.TB) sqlstore.Store{"memory": newStore}
	for name, database := range sqldbtest.Databases() {
		stores[name] = func(t testing.TB) sqlstore.Store {
			return sqldbtest.Opener(engines.OpenDB).Store(t, database(t), sqlstore.Options{})
		}
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // an engine mostly waits for its disk
			f(t, open(t))
		})
	}
}

func newStore(t testing.TB) sqlstore.Store {
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// start joins as name, after waiting a short time for a process that did not leave.
func start(t testing.TB, store sqlstore.Store, name string, peerURLs ...string) *Registry {
	t.Helper()
	r, err := Join(t.Context(), config(t, store, name, peerURLs...))
	require.NoError(t, err)
	return r
}

func config(t testing.TB, store sqlstore.Store, name string, peerURLs ...string) Config {
	return Config{
		Store: store, Name: name, PeerURLs: peerURLs, ClientURLs: []string{"http://" + name + ":2379"}, Version: "v1",
		poll: 10 * time.Millisecond, fastPoll: 10 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// replace joins as name without waiting for the process that has the name.
func replace(t testing.TB, store sqlstore.Store, name string) *Registry {
	t.Helper()
	cfg := config(t, store, name)
	cfg.Force = true
	r, err := Join(t.Context(), cfg)
	require.NoError(t, err)
	return r
}

func list(t testing.TB, r *Registry) []Member {
	t.Helper()
	members, err := r.Members(t.Context())
	require.NoError(t, err)
	return members
}

// member returns the member of that name as r finds it in the table now.
func member(t testing.TB, r *Registry, name string) Member {
	t.Helper()
	for _, m := range list(t, r) {
		if m.Name == name {
			return m
		}
	}
	require.Failf(t, "no such member", "%q", name)
	return Member{}
}

func heartbeat(t testing.TB, r *Registry) {
	t.Helper()
	require.NoError(t, r.heartbeat(t.Context(), nil))
}

func requireEnded(t testing.TB, r *Registry, want error) {
	t.Helper()
	select {
	case <-r.Ended():
	default:
		require.Fail(t, "the registry has not ended")
	}
	require.ErrorIs(t, r.Err(), want)
}

// writeRow puts a member's row.
func writeRow(t testing.TB, store sqlstore.Store, name, value string) {
	t.Helper()
	b := store.BeginBatchWrite()
	b.Put(coder.EncodeMemberKey(name), []byte(value))
	require.NoError(t, b.Commit(t.Context()))
}
